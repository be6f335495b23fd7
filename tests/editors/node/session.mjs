// A bare node client on VS Code's wire library, as an extension would use it, without VS Code around it.
//
//   node session.mjs MODE STORE COMMAND...
//
// It starts the daemon COMMAND and opens a session in its own current folder. MODE says what follows:
//   orderly  a turn with a tool, a second turn that hangs and is interrupted, shutdown, exit
//   abrupt   exit without shutdown
//   orphan   a turn whose tool hangs; then it waits to be killed
//   held     the same, while another process keeps the daemon's input open (until our own input ends)
// On standard output it writes one line of JSON that tells what it saw. It sleeps never: it waits for events.

import { spawn } from 'node:child_process'
import { createProtocolConnection, StreamMessageReader, StreamMessageWriter } from 'vscode-languageserver-protocol/node'

const [mode, store, command, ...rest] = process.argv.slice(2)
const child = spawn(command, rest, { stdio: ['pipe', 'pipe', 'inherit'] })
const exited = new Promise(resolve => child.on('exit', (code, signal) => resolve(code ?? signal)))
const connection = createProtocolConnection(new StreamMessageReader(child.stdout), new StreamMessageWriter(child.stdin))

const events = []
const stray = []
let changed = 0
let wake = () => {}
connection.onNotification('session/events', notice => {
  const told = events.length ? events.at(-1).seq : -1
  if (notice.prev !== told) stray.push(`prev is ${notice.prev} behind ${told}`)
  events.push(...notice.events)
  wake()
})
connection.onNotification('sessions/changed', () => { changed += 1 })
connection.onUnhandledNotification(message => stray.push(message.method))
connection.onError(([error]) => stray.push(String(error)))
connection.listen()

/** Wait for an event of which `wanted` is true, among those that came and those that will. */
async function event(wanted) {
  let found
  while ((found = events.find(wanted)) === undefined) await new Promise(resolve => { wake = resolve })
  return found
}

const prompt = text => connection.sendRequest('turn/start', { session, content: [{ type: 'text', text }] })
const ended = turn => event(one => one.type === 'turn/end' && one.data.turn === turn)
const tell = report => process.stdout.write(JSON.stringify(report) + '\n')

const server = await connection.sendRequest('initialize', {
  processId: process.pid,
  rootUri: null,
  capabilities: {},
  clientInfo: { name: 'bare-node' },
  initializationOptions: { store, onDisconnect: 'cancel' },
})
await connection.sendNotification('initialized', {})
const { session } = await connection.sendRequest('session/open', { cwd: process.cwd() })
await connection.sendRequest('event/subscribe', { session, after: -1 })

if (mode === 'orderly') {
  const first = await ended((await prompt('What is here?')).turn)
  const { turn } = await prompt('And now hang.')
  await event(one => one.type === 'assistant/chunk' && one.data.turn === turn)
  const { reason } = await connection.sendRequest('turn/interrupt', { session, turn })
  await ended(turn)
  const unknown = await connection.sendRequest('no/such').catch(error => error.code)
  await connection.sendRequest('shutdown')
  await connection.sendNotification('exit')
  tell({ name: server.serverInfo.name, session, first: first.data.reason, second: reason, unknown, stray,
    changed: changed > 0, types: events.map(one => one.type), code: await exited })
  process.exit(0)
} else if (mode === 'abrupt') {
  await connection.sendNotification('exit')
  tell({ session, stray, code: await exited })
  process.exit(0)
} else {
  await prompt('And now hang.')
  await event(one => one.type === 'tool/call')
  if (mode === 'held') {
    const wait = ['-e', 'process.stdin.on("end", () => process.exit(0)).resume()']
    spawn(process.execPath, wait, { stdio: ['inherit', 'ignore', 'inherit', child.stdin] })
  }
  tell({ session, stray, daemon: child.pid })
}
