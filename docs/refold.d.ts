// The native protocol of refold 0.1.0 (protocol version 1), for clients in TypeScript.
// Generated from the method table by `make golden`; do not edit.
// The methods of LSP that the daemon serves are not here: they have LSP's own types.

/** A word that this release does not know. */
export type Foreign = string & {};

/** Every request, by its method: what it takes and what it answers. */
export interface Requests {
  /** Begin a connection. */
  "initialize": { params: InitializeParams; result: InitializeResult };
  /** Take no further requests; the process goes on until `exit`. */
  "shutdown": { params: object | undefined; result: null };
  /** Open a session, or begin one. */
  "session/open": { params: SessionOpenParams; result: SessionOpenResult };
  /** Read a view of a session's log. */
  "session/read": { params: SessionReadParams; result: SessionReadResult };
  /** Wait until events are durable. */
  "session/flush": { params: SessionFlushParams; result: SessionFlushResult };
  /** Give a session back; refused while a turn runs. */
  "session/close": { params: SessionCloseParams; result: null };
  /** Begin a session with another's events. */
  "session/fork": { params: SessionForkParams; result: SessionForkResult };
  /** Delete a session for good. */
  "session/delete": { params: SessionDeleteParams; result: null };
  /** Leave a session out of lists, or bring it back. */
  "session/archive": { params: SessionArchiveParams; result: null };
  /** Let a session go on in another folder. */
  "session/rehome": { params: SessionRehomeParams; result: SessionRehomeResult };
  /** Sum up the history. */
  "session/compact": { params: SessionCompactParams; result: SessionCompactResult };
  /** Change settings. */
  "session/configure": { params: SessionConfigureParams; result: SessionConfigureResult };
  /** Give a session a title. */
  "session/rename": { params: SessionRenameParams; result: SeqResult };
  /** Tell the model something; asks nothing. */
  "session/inject": { params: SessionInjectParams; result: InputResult };
  /** Take back an input that waits. */
  "input/withdraw": { params: InputWithdrawParams; result: SeqResult };
  /** Accept a prompt; answered once on disk. */
  "turn/start": { params: TurnStartParams; result: TurnStartResult };
  /** Stop a turn; idempotent. */
  "turn/interrupt": { params: TurnInterruptParams; result: TurnInterruptResult };
  /** Wait for a turn's end; answers the `turn/end` event itself. */
  "turn/wait": { params: TurnWaitParams; result: EventOf<"turn/end"> };
  /** Say whether a call may run. */
  "approval/answer": { params: ApprovalAnswerParams; result: SeqResult };
  /** Ask a person whether a call may run. */
  "approval/request": { params: ApprovalRequestParams; result: ApprovalRequestResult };
  /** Follow a session's log. */
  "event/subscribe": { params: EventSubscribeParams; result: EventSubscribeResult };
  /** Stop following. */
  "event/unsubscribe": { params: EventUnsubscribeParams; result: EventUnsubscribeResult };
  /** Rebuild a request. */
  "request/rebuild": { params: RequestRebuildParams; result: RequestRebuildResult };
  /** Say what broke a prefix. */
  "request/explain": { params: RequestExplainParams; result: RequestExplainResult };
  /** List the requests that were sent. */
  "request/list": { params: RequestListParams; result: RequestListResult };
  /** Prove a log against its own records. */
  "log/verify": { params: LogVerifyParams; result: LogVerifyResult };
  /** List sessions, the latest active first. */
  "session/list": { params: SessionListParams; result: SessionListResult };
  /** Say what begins each request. */
  "prefix/compose": { params: PrefixComposeParams; result: PrefixComposeResult };
  /** Say how full a model's window is. */
  "meter/read": { params: MeterReadParams; result: MeterReadResult };
  /** List the configured models and providers. */
  "model/list": { params: NoParams; result: ModelListResult };
  /** List the tools that models are told of. */
  "tool/list": { params: NoParams; result: ToolListResult };
  /** Tell how the daemon and its store are. */
  "daemon/health": { params: NoParams; result: DaemonHealthResult };
  /** Give this table as JSON Schema. */
  "daemon/schema": { params: NoParams; result: DaemonSchemaResult };
}

/** Every notification, by its method, with who sends it. */
export interface Notifications {
  /** The client has read the answer to `initialize`. */
  "initialized": { params: object | undefined; direction: "to-daemon" };
  /** End the process: code 0 after `shutdown`, else 1. */
  "exit": { params: object | undefined; direction: "to-daemon" };
  /** Cancel a request; never a turn. */
  "$/cancelRequest": { params: CancelParams; direction: "both" };
  /** The next events of a subscription. */
  "session/events": { params: SessionEventsNotice; direction: "to-client" };
  /** A session's status is another one. */
  "sessions/changed": { params: SessionsChangedNotice; direction: "to-client" };
  /** What is wrong with a session's log. */
  "session/trouble": { params: SessionTroubleNotice; direction: "to-client" };
  /** How a turn with a `workDoneToken` goes on. */
  "$/progress": { params: ProgressNotice; direction: "to-client" };
  /** What the daemon did, for a client that asked. */
  "$/logTrace": { params: LogTraceNotice; direction: "to-client" };
  /** Interrupt a turn by its token. */
  "window/workDoneProgress/cancel": { params: ProgressCancelParams; direction: "to-daemon" };
  /** How much to tell of what the daemon does. */
  "$/setTrace": { params: SetTraceParams; direction: "to-daemon" };
}

/** The data of every type of event. */
export interface EventData {
  "instance/start": InstanceStart;
  "session/settings": SessionSettings;
  "input/accepted": InputAccepted;
  "input/settled": InputSettled;
  "turn/start": TurnStart;
  "turn/end": TurnEnd;
  "step/start": StepStart;
  "step/end": StepEnd;
  "user/message": UserMessage;
  "context/message": ContextMessage;
  "steering/message": SteeringMessage;
  "assistant/chunk": AssistantChunk;
  "assistant/message": AssistantMessage;
  "tool/call": ToolCall;
  "tool/result": ToolResult;
  "request/header": RequestHeader;
  "request/header-delta": RequestHeaderDelta;
  "request/sent": RequestSent;
  "llm/retry": LlmRetry;
  "model/window": ModelWindow;
  "plugin/failed": PluginFailed;
  "approval/asked": ApprovalAsked;
  "approval/decided": ApprovalDecided;
  "compact/start": CompactStart;
  "compact/summary": CompactSummary;
  "compact/end": CompactEnd;
  "session/title": SessionTitle;
}

/** An event of one type, as it is stored and sent. `time` is Unix epoch ms, `sources` ranges of seqs. */
export interface EventOf<T extends keyof EventData> {
  type: T;
  seq: number;
  time: number;
  data: EventData[T];
  surfaceOp?: SurfaceOp;
  sources?: [number, number][];
  ignorable?: boolean;
}

/** Any event, told apart by `type`. A type that is not among them is a ForeignEvent: it can be shown, not understood. */
export type Event = { [T in keyof EventData]: EventOf<T> }[keyof EventData];

/** An event of a plugin's type, or of a later release's. */
export interface ForeignEvent {
  type: Foreign;
  seq: number;
  time: number;
  data: unknown;
  surfaceOp?: SurfaceOp;
  sources?: [number, number][];
  ignorable?: boolean;
}

/** How an event changes the surface: it joins at the end, or takes the place of others. */
export type SurfaceOp = "append" | Replace;

/** What a session does. */
export type StatusWord = "idle" | "running" | "waiting" | "compacting" | "broken";

/** `data` of an error with code -31000; other members depend on the kind. */
export interface ErrorData {
  kind: ErrorKind | Foreign;
  retryable: boolean;
  [detail: string]: unknown;
}

/** Why a turn ended. The set is open: a plugin's kind may come too. */
export type TurnEndKind =
  | "completed"
  | "max-tokens"
  | "aborted"
  | "error"
  | "blocked"
  | "interrupted"
  | "forked"
  | "max-steps";

/** The ends that refold itself writes, told apart by `kind`. */
export type KnownTurnEnd =
  | { kind: "completed" }
  | { kind: "max-tokens" }
  | { kind: "aborted"; cause: NonNullable<TurnEndReason["cause"]> }
  | { kind: "error"; error: NonNullable<TurnEndReason["error"]> }
  | { kind: "blocked"; reason: NonNullable<TurnEndReason["reason"]> }
  | { kind: "interrupted" }
  | { kind: "forked" }
  | { kind: "max-steps" };

/** What `data.kind` of an error says, and the kind of a failed turn's error. */
export type ErrorKind =
  | "session.unknown"
  | "session.exists"
  | "session.busy"
  | "session.owned"
  | "session.readOnly"
  | "session.format"
  | "session.corrupt"
  | "cursor.ahead"
  | "cursor.diverged"
  | "seq.range"
  | "digest.mismatch"
  | "log.unwritable"
  | "log.full"
  | "log.busy"
  | "blob.unknown"
  | "turn.mismatch"
  | "input.unknown"
  | "input.pending"
  | "approval.settled"
  | "tool.exists"
  | "interrupted"
  | "invariant"
  | "overloaded"
  | "frame.tooLarge"
  | "provider.auth"
  | "provider.rejected"
  | "provider.unreachable"
  | "provider.rateLimited"
  | "provider.overloaded"
  | "provider.contextOverflow"
  | "provider.badStream"
  | "provider.timeout"
  | "provider.filtered"
  | "provider.refused"
  | "plugin.failed"
  | "compaction.failed"
  | "model.unconfigured"
  | "config.invalid";

/** The answer to `initialize`. */
export interface InitializeResult {
  capabilities: ServerCapabilities;
  serverInfo: PeerInfo;
}

/**
 * What the daemon offers. Only what is served is named: the language-server side to a client that announced it alone,
 * with members as LSP 3.17 has them, written out in `language.py`.
 */
export interface ServerCapabilities {
  positionEncoding: string;
  experimental: ExperimentalCapabilities;
  textDocumentSync?: object;
  codeActionProvider?: object;
  executeCommandProvider?: object;
  workspace?: object;
}

/** Where LSP leaves room. */
export interface ExperimentalCapabilities {
  refold: RefoldCapabilities;
}

/** What a client of the native protocol branches on. `schema` is the digest of the method table. */
export interface RefoldCapabilities {
  protocol: number;
  features: string[];
  limits: Limits;
  schema: string;
}

/** Bounds of the connection; sizes are in bytes. */
export interface Limits {
  frameBytes: number;
  unsentReplies: number;
  unsentReplyBytes: number;
  noticeEvents: number;
  noticeBytes: number;
}

/** The name and version by which a program calls itself. */
export interface PeerInfo {
  name: string;
  version?: string;
}

/** What is read of the params. `processId` is the process whose end ends the daemon; `trace` is as in `$/setTrace`. */
export interface InitializeParams {
  processId?: number;
  clientInfo?: PeerInfo;
  capabilities?: ClientCapabilities;
  initializationOptions?: InitializationOptions;
  trace?: string;
}

/** What is read here of the client's capabilities. `language.py` reads the two parts that came as text. */
export interface ClientCapabilities {
  general?: GeneralCapabilities;
  textDocument?: object;
  workspace?: object;
  window?: object;
}

/** The part of the client's capabilities that is about the connection; `positionEncodings` by preference. */
export interface GeneralCapabilities {
  positionEncodings: string[] | null;
}

/**
 * refold's own settings for this connection. `model` is `provider/model`; `store` is a path;
 * `onDisconnect` says what happens to a running turn when the client goes. With `waitForCommands` each command of
 * `workspace/executeCommand` is answered at its turn's end, for clients that take edits only while they wait for the answer.
 *
 * There is no option for a configuration file: editors take these options from the workspace that they show, and a cloned
 * repository must not be able to name providers.
 */
export interface InitializationOptions {
  model?: string;
  store?: string;
  onDisconnect?: "cancel" | "finish";
  waitForCommands?: boolean;
}

/**
 * `session/open`. `tail` and `durable` are the seqs of the last accepted and the last durable event, −1 for none.
 * `instance` and `writer` are there when it was opened for writing. Pending inputs are in the order of acceptance; `grants`
 * are the tools that were allowed for the session.
 */
export interface SessionOpenResult {
  session: string;
  tail: number;
  durable: number;
  info: SessionInfo;
  status: Status;
  pendingInputs: PendingInput[];
  instance?: number;
  writer?: string;
  grants?: string[];
}

/**
 * What is known of a session beside its events. Times are Unix epoch ms; `usage` is in tokens, `inherited`
 * of a fork what its parent's events cost; `model` is `provider/model`, the last one used or set. An absent number is 0.
 */
export interface SessionInfo {
  cwd: string;
  createdAt: number;
  title?: string;
  model?: string;
  lastActivity?: number;
  turns?: number;
  usage?: UsageTotals;
  parent?: ForkOrigin;
  archived?: boolean;
  inherited?: UsageTotals;
}

/** Tokens of all replies and summaries of a log, in the disjoint buckets of Usage. Unknown buckets count as nothing here. */
export interface UsageTotals {
  inputTokens?: number;
  outputTokens?: number;
  cacheReadTokens?: number;
  cacheWriteTokens?: number;
}

/** The parent of a fork, the last inherited seq, and the digest of that event in hex. */
export interface ForkOrigin {
  session: string;
  at: number;
  digest: string;
}

/**
 * `status` is `idle`, `running`, `waiting` (for an approval), `compacting` or `broken` (its log cannot be written).
 *
 * `turn` and `step` are the open ones. Calls and approvals are in the order in which they were asked for. `unmetered`, in
 * the answer to `session/open` alone: nobody stated the window of the model, so the session is not metered and never
 * compacted.
 */
export interface Status {
  status: StatusWord;
  turn?: number;
  step?: number;
  openCalls?: string[];
  openApprovals?: string[];
  unmetered?: boolean;
}

/** An input that waits; `seq` is that of its `input/accepted`. */
export interface PendingInput {
  input: string;
  seq: number;
  mode: "prompt" | "steer" | "inject";
  content: (TextBlock | ImageBlock)[];
  source: Source;
  key?: string;
}

/** Text that the model reads or writes. */
export interface TextBlock {
  type: "text";
  text: string;
}

/** An image; `blob` is the SHA-256 of its bytes in lower-case hex. */
export interface ImageBlock {
  type: "image";
  mediaType: string;
  blob: string;
}

/** Who caused something. `kind` is `client`, `cli`, `plugin`, `tool`, `file`, `loop` or `closer`; the set is open. */
export interface Source {
  kind: string;
  name?: string;
}

/**
 * `session/open`: `session` opens one that exists; `cwd` (an absolute path or a `file:` URI) begins a new one, with
 * the other settings as its first. A new one is always opened for writing.
 */
export interface SessionOpenParams {
  session?: string;
  mode?: "read" | "write";
  cwd?: string;
  title?: string;
  model?: string;
  permissions?: PermissionParams;
  limits?: LimitParams;
  compaction?: CompactionParams;
}

/** What becomes of tools that change something: a person is asked, they run, they do not run. */
export interface PermissionParams {
  mode: "allow" | "ask" | "deny";
}

/** Bounds of one turn; `steps` is the largest number of model calls. */
export interface LimitParams {
  steps: number;
}

/**
 * When the history is summed up; an absent member stays as it is. `auto`: without being asked to. `thresholdRatio` is the
 * share of the window at which that begins, above 0 and below 1; `retainTokens` at the end stay as they are.
 */
export interface CompactionParams {
  auto?: boolean;
  thresholdRatio?: number;
  retainTokens?: number;
}

/** `session/read`: the member that belongs to the view, in order; `next` is the `page.after` of the next page. */
export interface SessionReadResult {
  events?: Event[];
  nodes?: SurfaceNode[];
  entries?: TranscriptEntry[];
  header?: EpochHeader | null;
  status?: Status;
  next?: number;
}

/** A node of the surface: its event's seq and type, and the message that it becomes for the model, if any. */
export interface SurfaceNode {
  seq: number;
  type: string;
  message?: Message;
}

/** One message of a request. `role` is `system`, `user` or `assistant`; tool results are blocks of user messages. */
export interface Message {
  role: "system" | "user" | "assistant";
  content: (TextBlock | ReasoningBlock | ImageBlock | ToolCallBlock | ToolResultBlock)[];
  replay?: Replay;
}

/** The model's visible thinking. Recorded always; sent back only by dialects that ask for it. */
export interface ReasoningBlock {
  type: "reasoning";
  text: string;
}

/** A call that the model asks for. `arguments` is the model's own text, which need not be valid JSON. */
export interface ToolCallBlock {
  type: "tool-call";
  id: string;
  name: string;
  arguments: string;
}

/** The answer to a call, inside a user message. */
export interface ToolResultBlock {
  type: "tool-result";
  toolCallId: string;
  content: (TextBlock | ImageBlock)[];
  isError: boolean;
}

/** What an adapter needs to send a reply back to the very provider and model that made it (say, thinking signatures). */
export interface Replay {
  provider: string;
  model: string;
  data: string;
}

/**
 * One thing that a person sees. `kind` is `user`, `context`, `steering`, `assistant`, `tool`, `blocked`,
 * `pending`, `compaction` or `end`; the set is open. `seq` is that of the event it comes from.
 */
export interface TranscriptEntry {
  seq: number;
  time: number;
  kind: string;
  turn?: number;
  step?: number;
  content?: (TextBlock | ReasoningBlock | ImageBlock | ToolCallBlock | ToolResultBlock)[];
  source?: Source;
  interrupted?: boolean;
  model?: string;
  usage?: Usage;
  callId?: string;
  tool?: string;
  arguments?: string;
  isError?: boolean;
  error?: ToolErrorInfo;
  reason?: TurnEndReason;
  note?: string;
}

/**
 * Tokens of one call, in disjoint buckets. An absent bucket is unknown, which is not zero.
 *
 * `inputTokens` counts what was neither read from nor written to a cache. `reasoningTokens` is part of
 * `outputTokens` already and only informs.
 */
export interface Usage {
  inputTokens: number;
  outputTokens: number;
  cacheReadTokens?: number;
  cacheWriteTokens?: number;
  reasoningTokens?: number;
}

/** Which error: `code` is the stable identifier (`UNKNOWN_TOOL`, …), `name` the class. */
export interface ToolErrorInfo {
  name: string;
  code: string;
}

/**
 * How a turn ended. An open union told apart by `kind`; see `endings.py` for the kinds and what each carries.
 *
 * A kind that is not listed there is a legal foreign value. Of its members `reason` and `payload` (JSON text) are read where
 * they are strings, as a plugin of ours writes them; whatever else it has stays in the event's line.
 */
export interface TurnEndReason {
  kind: TurnEndKind | Foreign;
  cause?: AbortCause;
  error?: TurnError;
  reason?: string;
  payload?: string;
}

/** Who stopped a turn: `kind` is `user`, `parent`, `hook` or `disposed`. */
export interface AbortCause {
  kind: string;
  reason?: string;
}

/** What made a turn fail. `kind` is one of `errors.KINDS`; `message` is a sentence with a hint for a person. */
export interface TurnError {
  kind: ErrorKind | Foreign;
  message: string;
  step?: number;
  status?: number;
  retryAfterMs?: number;
  requestId?: string;
}

/** The state of a request that is not history. Compared by value on every step. */
export interface EpochHeader {
  config: CallConfig;
  system?: string;
  tools?: ToolSchema[];
  messagePrefix?: Message[];
}

/**
 * Everything beside system, tools and messages that can change a byte of a body. Closed: nothing else reaches an encoder.
 *
 * `dialect` names the encoder. `dialectOptions` holds its resolved settings as canonical JSON text, `extra` an object
 * that is merged into the body. Base address, credentials, proxies and HTTP headers are no part of a request.
 */
export interface CallConfig {
  provider: string;
  model: string;
  dialect: string;
  dialectOptions?: string;
  temperature?: number;
  topP?: number;
  maxTokens?: number;
  stop?: string[];
  reasoningEffort?: string;
  extra?: string;
}

/** A tool as the model sees it; `parameters` is its JSON Schema as text. */
export interface ToolSchema {
  name: string;
  description: string;
  parameters: string;
}

/** `session/read`: a view of the events 0…`at`; of all events where there is no `at`. */
export interface SessionReadParams {
  session: string;
  view: "events" | "header" | "status" | "surface" | "transcript";
  at?: number;
  page?: Page;
}

/**
 * Which part of a view: what lies behind `after` and before `before` (seqs, both exclusive), at most `limit` items
 * and `maxBytes` bytes, but at least one item where there is one.
 */
export interface Page {
  after?: number;
  before?: number;
  limit?: number;
  maxBytes?: number;
}

/** `session/flush`: seq of the last durable event. */
export interface SessionFlushResult {
  durable: number;
}

/** `session/flush`: wait until the events up to `upTo` are durable; all accepted ones where it is absent. */
export interface SessionFlushParams {
  session: string;
  upTo?: number;
}

/** `session/close`: with `cancel`, a running turn is cancelled first. */
export interface SessionCloseParams {
  session: string;
  cancel?: boolean;
}

/** `session/fork`: the new session, which nobody has open, and the seq of its last event. */
export interface SessionForkResult {
  session: string;
  tail: number;
}

/**
 * `session/fork`: the new session begins with the events 0…`at` of `session`; with all of them where there is no `at`.
 * Of a session that another process writes, what is on disk can be forked. `title` is the new session's, `cwd` its folder (an
 * absolute path or a `file:` URI) where that is not its parent's.
 */
export interface SessionForkParams {
  session: string;
  at?: number;
  title?: string;
  cwd?: string;
}

/** `session/delete`: for good. Forks of the session keep what they inherited. */
export interface SessionDeleteParams {
  session: string;
}

/** `session/archive`: whether the session is left out of lists that do not ask for archived ones. */
export interface SessionArchiveParams {
  session: string;
  archived?: boolean;
}

/** `session/rehome`: the folder of the session from now on. */
export interface SessionRehomeResult {
  cwd: string;
}

/**
 * `session/rehome`: the session goes on in the folder `cwd` (an absolute path or a `file:` URI), because its own was moved
 * or renamed. Refused while a turn runs; a session that is open stays open, and whoever follows it subscribes anew.
 */
export interface SessionRehomeParams {
  session: string;
  cwd: string;
}

/**
 * `session/compact`: `seq` is that of the message that stands for the history now; `tokens` is what it costs and
 * `shadowedTokens` what that had cost, in tokens as the session's meter estimates them.
 */
export interface SessionCompactResult {
  seq: number;
  tokens: number;
  shadowedTokens: number;
}

/**
 * `session/compact`: sum up the whole history for the model; refused while a turn runs. `instructions` say what the
 * summary should hold besides. `workDoneToken` asks for `$/progress`; cancelling either stops it.
 */
export interface SessionCompactParams {
  session: string;
  instructions?: string;
  workDoneToken?: number | string;
}

/** `session/configure`: the settings in force, and the seq of their record. */
export interface SessionConfigureResult {
  settings: SessionSettings;
  seq: number;
}

/**
 * The settings in force from here on; an absent one is the configuration's. `model` is `provider/model`. `revoked` names
 * tools that were allowed for the session and are asked about again.
 */
export interface SessionSettings {
  model?: string;
  effort?: string;
  permissions?: PermissionSettings;
  limits?: LimitSettings;
  compaction?: CompactionSettings;
  revoked?: string[];
}

/** What may run without asking; `mode` is a word of the configuration. */
export interface PermissionSettings {
  mode?: string;
}

/** Bounds of one turn; `steps` is the largest number of model calls. */
export interface LimitSettings {
  steps?: number;
}

/**
 * When a session's history is summed up; an absent member is the configuration's. `auto`: without being asked to.
 * `thresholdRatio` is the share of the window at which that begins; `retainTokens` at the end stay as they are.
 */
export interface CompactionSettings {
  auto?: boolean;
  thresholdRatio?: number;
  retainTokens?: number;
}

/** `session/configure`. */
export interface SessionConfigureParams {
  session: string;
  patch: ConfigurePatch;
}

/**
 * What to change; an absent member stays as it is. `revoke` names tools that were allowed for the session and are asked
 * about again from the next call on. `model` is `provider/model`. Another permission mode is told to the
 * model as context and holds for calls from then on: a question that is open stays open. `tools: now` lets new and changed
 * tools join with the next request, which pays its history anew.
 */
export interface ConfigurePatch {
  model?: string;
  effort?: string;
  permissions?: PermissionParams;
  limits?: LimitParams;
  tools?: "now";
  compaction?: CompactionParams;
  revoke?: string[];
}

/** A change that is recorded, durably, at `seq`. */
export interface SeqResult {
  seq: number;
}

/** `session/rename`. */
export interface SessionRenameParams {
  session: string;
  title: string;
}

/** An input that is durable at `seq`; `turn` is there when it made a turn of its own. */
export interface InputResult {
  input: string;
  seq: number;
  turn?: number;
}

/** `session/inject`: tell the model something without asking anything. */
export interface SessionInjectParams {
  session: string;
  content: TextInput[];
  source: InjectSource;
}

/** Text of a prompt. The only kind of content that can be sent yet. */
export interface TextInput {
  type: "text";
  text: string;
}

/** Who tells the model something; the model sees `KIND:NAME`. */
export interface InjectSource {
  kind: "client" | "file" | "plugin" | "tool";
  name?: string;
}

/** `input/withdraw`: take back an input that waits. */
export interface InputWithdrawParams {
  session: string;
  input: string;
}

/** `turn/start`: the input is durable at `seq`; `turn` is there when it started one. */
export interface TurnStartResult {
  input: string;
  seq: number;
  turn?: number;
}

/**
 * `turn/start`: with new `content`, or with an `input` that waits since an earlier instance. While a turn runs, content is
 * refused, queued behind it, or steers it. `workDoneToken` asks for `$/progress` of the turn. A `key` that the session has
 * seen gives the first reply again and starts nothing, so a request whose reply was lost can be sent once more.
 */
export interface TurnStartParams {
  session: string;
  content?: TextInput[];
  input?: string;
  ifRunning?: "error" | "queue" | "steer";
  key?: string;
  workDoneToken?: number | string;
}

/** `turn/interrupt`: the `reason` object of the turn's end as recorded; `null` on an idle session. */
export interface TurnInterruptResult {
  reason: TurnEndReason | null;
}

/**
 * `turn/interrupt`: with `withdrawQueued`, what waits behind the turn is taken back as well. It does not wait behind
 * a long queue of other requests, so send it once the turn is known to run.
 */
export interface TurnInterruptParams {
  session: string;
  turn: number;
  withdrawQueued?: boolean;
}

/**
 * `turn/wait`: for the end of a turn, or of the turn that an input starts. Answered with an error as soon as that can no
 * longer come: `input.unknown` when the input was withdrawn or has joined a turn, `input.pending` when it waits since an
 * earlier process, `session.readOnly` when the session was closed or deleted while the input still waited.
 */
export interface TurnWaitParams {
  session: string;
  turn?: number;
  input?: string;
}

/**
 * `approval/answer`: settle an open question without being asked. With the scope `session`, further calls of that tool run
 * without a question as long as the session lives.
 */
export interface ApprovalAnswerParams {
  session: string;
  approval: string;
  outcome: "allowed" | "denied";
  scope?: "once" | "session";
}

/** `approval/request`: the id of the option that was chosen. */
export interface ApprovalRequestResult {
  option: string;
}

/**
 * `approval/request`: a call waits until somebody says whether it may run. `approval` is its durable id, the same when the
 * question is asked again. `subject` is exactly what would happen. A reply that names none of the `options`, an error, or
 * none within `deadlineMs` milliseconds is `default`. Cancelled when the question is settled elsewhere.
 */
export interface ApprovalRequestParams {
  session: string;
  approval: string;
  turn: number;
  callId: string;
  tool: string;
  subject: ApprovalSubject;
  options: ApprovalOption[];
  default: string;
  deadlineMs?: number;
}

/** What exactly would happen: `kind` is `command`, `diff`, `path` or `text`. */
export interface ApprovalSubject {
  kind: "command" | "diff" | "path" | "text";
  text: string;
}

/** One thing that can be answered: `id` is what the reply names, `label` is for a person, in English. */
export interface ApprovalOption {
  id: string;
  kind: "allowOnce" | "allowSession" | "deny";
  label: string;
}

/** `event/subscribe`. `writer` is absent for a session that nobody ever wrote. */
export interface EventSubscribeResult {
  subscription: number;
  tail: number;
  durable: number;
  writer?: string;
}

/**
 * `event/subscribe`: what comes after the event `after` (−1: from the start; `tail`: from now on). `writer` is the
 * one under which the client learnt of `after`. `chunks`: all of them; while the client keeps up (`live`: those whose
 * message is there already are left out); none.
 */
export interface EventSubscribeParams {
  session: string;
  after: number | "tail";
  writer?: string;
  chunks?: "all" | "live" | "none";
}

/** `event/unsubscribe`: the seq of the last event that was sent. None of the subscription follows this reply. */
export interface EventUnsubscribeResult {
  last: number;
}

/** `event/unsubscribe`. */
export interface EventUnsubscribeParams {
  subscription: number;
}

/**
 * `request/rebuild`: the exact body as text, its SHA-256 and the Request's, in hex. `verdict` compares with what was
 * recorded when it was sent: `unshipped` where this release lacks that encoder version, `unsent` where nothing was.
 */
export interface RequestRebuildResult {
  body: string;
  sha256: string;
  requestSha256: string;
  verdict: "different" | "equal" | "unsent" | "unshipped";
}

/** `request/rebuild`: the request of one step, or of the compaction whose `compact/start` has the seq `compact`. */
export interface RequestRebuildParams {
  session: string;
  turn?: number;
  step?: number;
  compact?: number;
}

/**
 * `request/explain`: what the later request shares with the earlier one, `against` (absent for the first of a log).
 *
 * `common` counts the bytes that both bodies begin with, absent where an encoder is not shipped or an image is missing.
 * `verdict`: `first`; `kept`: all bytes of the earlier body are there but its closing brackets; `break`: they are not;
 * `moved`: they are, but went to another provider; `provider`: they are, and the provider reports clearly fewer tokens as
 * cached than it had read; `summary`: the same, and it was asked for a summary in between, whose request may have taken their
 * place; `unknown`: they are, and the provider's figures do not tell; `apart`: a summary's request, compared with none.
 * `reasons` are sentences, the nearest first. Tokens are those that the provider reported, absent where it did not.
 */
export interface RequestExplainResult {
  request: ExplainedRequest;
  verdict: "apart" | "break" | "first" | "kept" | "moved" | "provider" | "summary" | "unknown";
  causes: ExplainedCause[];
  reasons: string[];
  against?: ExplainedRequest;
  common?: number;
  parting?: ExplainedParting;
  promptTokens?: number;
  cachedTokens?: number;
}

/**
 * A request that was sent: its step, the attempt, the seq of its `request/sent`, the bytes of its body. One for a summary,
 * in `refold cache --json` alone, has the step 0.0 and the seq of its `compact/start` as `compaction`.
 */
export interface ExplainedRequest {
  turn: number;
  step: number;
  attempt: number;
  seq: number;
  bytes: number;
  compaction?: number;
}

/**
 * An event between the two requests after which the later one may begin otherwise, and what it changed as a sentence.
 * `kind` is `header`, `instance` (the first header of the loop instance `instance`), `compaction` or `pruning`.
 */
export interface ExplainedCause {
  seq: number;
  type: string;
  kind: string;
  sentence: string;
  instance?: number;
}

/**
 * Where the two bodies part: the first byte that differs, the segment that holds it, and excerpts of both around it.
 *
 * `segment` is `config`, `tools`, `system`, `prefix`, `history` or `tail`, `where` the same in words; `index` counts tools
 * and messages from 0, `name` is that of a setting or a tool, `node` the seq of the event that the message came from.
 */
export interface ExplainedParting {
  offset: number;
  segment: string;
  where: string;
  before: string;
  after: string;
  index?: number;
  name?: string;
  node?: number;
}

/**
 * `request/explain`: the request of one step, compared with that of `against`, by default the request before it.
 * Whichever of the two is later is compared with the earlier one.
 */
export interface RequestExplainParams {
  session: string;
  turn: number;
  step: number;
  against?: StepPlace;
}

/** A step, by the numbers of its turn and of itself. */
export interface StepPlace {
  turn: number;
  step: number;
}

/** `request/list`: one row a request, oldest first; `next` is the `after` of the next page, absent on the last. */
export interface RequestListResult {
  requests: SentRow[];
  next?: number;
}

/**
 * A request that was sent; `seq` is that of its `request/sent`, `time` its Unix epoch ms. `purpose` is `step` or `summary`.
 *
 * `turn` and `step` say for which step, `compaction` is the seq of the `compact/start` of a summary. `sha256` is that of the
 * body, which has `bytes`; `digest` that of the canonical request. `usage` has the tokens by bucket, as the provider reported
 * them; absent where it did not. `durationMs` lasts to the `end`, both absent while there is none: for a whole reply the
 * reason of its finish, `interrupted` for one that was stopped, for a failure the kind of its error, for a summary that was
 * thrown away `failed`. `inherited`: the request is the parent's of this fork.
 */
export interface SentRow {
  seq: number;
  time: number;
  purpose: string;
  attempt: number;
  model: string;
  dialect: string;
  bytes: number;
  sha256: string;
  digest: string;
  turn?: number;
  step?: number;
  compaction?: number;
  usage?: Usage;
  durationMs?: number;
  end?: string;
  inherited?: boolean;
}

/** `request/list`: the requests that were sent behind the event `after` (absent: from the first on), at most `limit`. */
export interface RequestListParams {
  session: string;
  after?: number;
  limit?: number;
}

/**
 * `log/verify`: how many events and requests were checked, how many requests came out equal, how many were of an
 * encoder version that this release does not ship; the first mismatch, if any. `inherited` of the requests are the parent's of
 * this fork. `differences` are all mismatches in the order of the log, on the wire the first 1,000. `refold verify --json`
 * prints the same members, and besides `session` and `verified`.
 */
export interface LogVerifyResult {
  events: number;
  requests: number;
  equal: number;
  unshipped: number;
  mismatch?: Mismatch;
  inherited?: number;
  differences?: Mismatch[];
}

/**
 * The first thing that differs, at the event `seq`, or somewhere in the events `seq` to `last`: `what` is `record`,
 * `chain`, `head`, `line`, `grammar`, `surface`, `header`, `pairing`, `request` or `body`; `message` says what was expected
 * and what was found.
 */
export interface Mismatch {
  what: string;
  seq: number;
  message: string;
  last?: number;
}

/** `log/verify`: the whole log. */
export interface LogVerifyParams {
  session: string;
}

/** `session/list`: `next` is the cursor of the next page, absent on the last. */
export interface SessionListResult {
  sessions: SessionRow[];
  next?: string;
}

/**
 * A session in a list. `status` is a word of Status; `usage` is in tokens, `inherited` of a fork what its parent's events
 * cost, which `usage` does not count again.
 */
export interface SessionRow {
  session: string;
  cwd: string;
  createdAt: number;
  lastActivity: number;
  tail: number;
  turns: number;
  status: StatusWord;
  title?: string;
  model?: string;
  usage?: UsageTotals;
  parent?: ForkOrigin;
  archived?: boolean;
  inherited?: UsageTotals;
}

/**
 * `session/list`: the most recently active first, `limit` at most, going on behind `cursor` (the `next` of the page
 * before). `cwd` keeps the sessions of one folder, `moved` those whose folder is not there any more, `text` those in whose
 * title or prompts it stands, whatever its case. A page may be short, even empty, and have a next one: it looks at so many
 * sessions, and reads so much of their logs, only.
 */
export interface SessionListParams {
  limit: number;
  cwd?: string;
  text?: string;
  archived?: boolean;
  cursor?: string;
  moved?: boolean;
}

/**
 * `prefix/compose`: `composed` tells that this is in force in the live session; else it is what an instance that began
 * now would have. `contributors` stand in the order of the wire, those without a word last. `recorded` tells whether the
 * last recorded request has this very prefix; absent where there is none. `failures` are sentences.
 */
export interface PrefixComposeResult {
  cwd: string;
  composed: boolean;
  contributors: PrefixContribution[];
  bytes?: number;
  tokens?: number;
  sha256?: string;
  recorded?: boolean;
  failures?: string[];
}

/**
 * What one contributor of a plugin says; without messages it says nothing, and has no digest. `removed` counts messages
 * of contributors behind it that it left out.
 */
export interface PrefixContribution {
  plugin: string;
  contributor: string;
  messages?: Message[];
  bytes?: number;
  tokens?: number;
  sha256?: string;
  removed?: number;
}

/** `prefix/compose`. */
export interface PrefixComposeParams {
  session: string;
}

/**
 * `meter/read`: the `tokens` of the next request's prompt, the model's whole `window`, and the share of it, `ratio`.
 *
 * With an `anchor`, tokens are what the provider counted then and, by estimate, what the surface gained or lost since; without
 * one they are `header` (system text, tools, prefix) and `surface`, both estimated. `nodes` are the prices of the surface, in
 * its order. `logRevision` counts the events that were consumed: the next event's seq.
 */
export interface MeterReadResult {
  model: string;
  tokens: number;
  window: number;
  ratio: number;
  header: number;
  surface: number;
  nodes: MeterNode[];
  logRevision: number;
  anchor?: MeterAnchor;
}

/** A node of the surface by its seq, and its estimated tokens; 0 for one that the model does not see. */
export interface MeterNode {
  seq: number;
  tokens: number;
}

/**
 * A call that the provider counted: its step, the seq of its reply, and the `tokens` of its prompt and output; after a
 * compaction of its prompt alone, where it is the first call that was counted.
 */
export interface MeterAnchor {
  turn: number;
  step: number;
  seq: number;
  tokens: number;
}

/**
 * `meter/read`: what the next request would cost `model` (`provider/model`), by default the one that the session used or
 * was given last.
 */
export interface MeterReadParams {
  session: string;
  model?: string;
}

/** `model/list`: the models that the configuration names, and the providers behind them, both in its order. */
export interface ModelListResult {
  models: ModelRow[];
  providers: ProviderRow[];
}

/** A model that the configuration names. Window and output are in tokens, absent where nothing is configured. */
export interface ModelRow {
  model: string;
  provider: string;
  dialect: string;
  isDefault?: boolean;
  contextWindow?: number;
  maxOutput?: number;
}

/**
 * A configured provider: any of its models can be named as `provider/model`. `credentials` says where its key comes
 * from and whether it is there: `none`, `present` or `missing`; `command` where a command gives it.
 */
export interface ProviderRow {
  provider: string;
  dialect: string;
  credentials: "none" | "present" | "missing" | "command";
  baseUrl?: string;
}

/** The params of a method that takes none. */
export type NoParams = Record<string, never>;

/** `tool/list`: in the order in which models are told of them. */
export interface ToolListResult {
  tools: ToolRow[];
}

/** A tool as models are told of it. `parameters` is its JSON Schema; `source` is `builtin`, or `plugin:NAME`. */
export interface ToolRow {
  name: string;
  description: string;
  parameters: object;
  readOnly: boolean;
  source: string;
}

/**
 * `daemon/health`. `plugins` are in the order in which they were loaded; `unsent` counts replies and requests that the
 * client has not read.
 */
export interface DaemonHealthResult {
  version: string;
  pid: number;
  uptimeMs: number;
  store: StoreHealth;
  sessions: LiveHealth[];
  plugins?: PluginHealth[];
  unsent?: number;
  unsentBytes?: number;
}

/** The store: its format version, the size of its data file, of its map and of what is used of it, in bytes. */
export interface StoreHealth {
  path: string;
  format: number;
  fileBytes: number;
  mapBytes: number;
  usedBytes: number;
  sessions: number;
  readers: number;
}

/** A session that this daemon has open for writing. `trouble` says why its log cannot be written. */
export interface LiveHealth {
  session: string;
  status: StatusWord;
  tail: number;
  durable: number;
  trouble?: string;
}

/**
 * A plugin that is loaded: where it comes from, the tools and event types that it brought, its seams in the order of a
 * turn. What comes with refold is the plugin `refold`.
 */
export interface PluginHealth {
  plugin: string;
  origin: string;
  tools: string[];
  eventTypes: string[];
  seams: SeamTally[];
}

/**
 * What a plugin did at one seam since the daemon began: calls of its handlers there, failures among them, and their own
 * time in milliseconds, without what they waited for the rest of a chain.
 */
export interface SeamTally {
  seam: string;
  calls: number;
  failures: number;
  totalMs: number;
  slowestMs: number;
}

/** `daemon/schema`: the method table as JSON Schema, and its digest. */
export interface DaemonSchemaResult {
  digest: string;
  schema: { methods: object; types: object };
}

/** `$/cancelRequest`: the request to cancel. */
export interface CancelParams {
  id: number | string;
}

/**
 * `session/events`: the next events of a subscription, in order; none when it only tells how far they are durable.
 *
 * `prev` is the seq sent before (the subscription's `after` in the first one), `tail` and `durable` the seqs of the last
 * accepted and the last durable event. `caughtUp` is true when nothing more waits; `phase` says what a running turn
 * waits for. `writer` is absent for a session that nobody ever wrote.
 */
export interface SessionEventsNotice {
  subscription: number;
  events: Event[];
  prev: number;
  tail: number;
  durable: number;
  writer?: string;
  caughtUp?: boolean;
  phase?: string;
}

/**
 * `sessions/changed`: the status of a session that this daemon writes is another one; for status lines and pickers.
 * `status` is a word of Status, `tail` the seq of the session's last durable event. Of a session that another process
 * writes and that is followed here it is told when that process is gone and left something open: `idle`, as views say.
 */
export interface SessionsChangedNotice {
  session: string;
  status: StatusWord;
  tail: number;
}

/**
 * `session/trouble`: the log of a session cannot be written, or can again, or a subscription cannot go on. It is about
 * the log and not in it. Also, once, that nobody stated the window of the session's model (`model.unconfigured`): then nothing
 * of the session is metered or compacted.
 *
 * `kind` is an error kind, or `cleared` when a later commit succeeded; `durable` the seq of the last durable event (−1 for
 * a session that is not there any more); `subscription` names the one that ends with this, where one does.
 */
export interface SessionTroubleNotice {
  session: string;
  kind: string;
  durable: number;
  message: string;
  subscription?: number;
}

/**
 * `$/progress` of a turn that was started with a `workDoneToken`. What was begun has its end, whose `message` is how the
 * turn ended; `withdrawn` or `closed` where the input still waited when it was taken back or its session was closed.
 */
export interface ProgressNotice {
  token: number | string;
  value: WorkDone;
}

/** How a turn goes on: `kind` is `begin`, `report` or `end`, as in LSP. */
export interface WorkDone {
  kind: "begin" | "report" | "end";
  title?: string;
  message?: string;
  cancellable?: boolean;
}

/** `$/logTrace`: a request was answered; with the trace `verbose`, `verbose` holds its params as JSON text. */
export interface LogTraceNotice {
  message: string;
  verbose?: string;
}

/** `window/workDoneProgress/cancel`. */
export interface ProgressCancelParams {
  token: number | string;
}

/** `$/setTrace`: how much the client wants to hear of what the daemon does. */
export interface SetTraceParams {
  value: "messages" | "off" | "verbose";
}

/** A loop instance begins; what stands before was inherited. `reason` is `new`, `resume` or `fork`. */
export interface InstanceStart {
  instance: number;
  reason: string;
  client?: ClientInfo;
}

/** The editor or program at the other end, by its own account. */
export interface ClientInfo {
  name: string;
  version?: string;
}

/** Something came in: `mode` is `prompt`, `steer` or `inject`. Flushed before its request is answered. */
export interface InputAccepted {
  input: string;
  mode: "prompt" | "steer" | "inject";
  content: (TextBlock | ImageBlock)[];
  source: Source;
  key?: string;
}

/** An input will never become a message: `how` is `withdrawn`, `blocked` or `aborted`. */
export interface InputSettled {
  input: string;
  how: string;
  reason?: string;
}

/** A turn opens. Turns number from 1 in a session. */
export interface TurnStart {
  turn: number;
  trigger: Trigger;
}

/** Why a turn started: `kind` is `message` or `injection`. */
export interface Trigger {
  kind: string;
  source: Source;
  input?: string;
}

/** A turn closes. */
export interface TurnEnd {
  turn: number;
  reason: TurnEndReason;
}

/** A step opens: the reconstruction boundary of its request. Steps number from 1 in a turn. */
export interface StepStart {
  turn: number;
  step: number;
}

/** A step closes; `outcome` is `ok` (absent), `overflow`, `error` or `aborted`. */
export interface StepEnd {
  turn: number;
  step: number;
  outcome?: string;
}

/** A prompt that joined the history, or a compaction's summary that took its place. */
export interface UserMessage {
  content: (TextBlock | ImageBlock)[];
  source: Source;
  input?: string;
}

/** Something the model should know; `envelope` is `context` (wrapped by the projection) or `raw` (verbatim). */
export interface ContextMessage {
  content: (TextBlock | ImageBlock)[];
  source: Source;
  envelope: string;
  input?: string;
  meta?: string;
}

/** Input that joined a running turn between two steps. */
export interface SteeringMessage {
  turn: number;
  content: (TextBlock | ImageBlock)[];
  source: Source;
  input?: string;
}

/** One decoded piece of a reply, as it came. */
export interface AssistantChunk {
  turn: number;
  step: number;
  attempt: number;
  chunk: BlockStart | TextDelta | ReasoningDelta | ToolCallDelta | BlockEnd | UsageChunk | FinishChunk;
}

/** A block opens at `index`; `block` is `text`, `reasoning` or `tool-call`. `id` and `name` belong to tool calls. */
export interface BlockStart {
  type: "block-start";
  index: number;
  block: string;
  id?: string;
  name?: string;
}

/** More text of the block at `index`. */
export interface TextDelta {
  type: "text-delta";
  index: number;
  text: string;
}

/** More thinking of the block at `index`. */
export interface ReasoningDelta {
  type: "reasoning-delta";
  index: number;
  text: string;
}

/** More of the arguments' text of the call at `index`. */
export interface ToolCallDelta {
  type: "tool-call-delta";
  index: number;
  arguments: string;
}

/** The block at `index` is complete. */
export interface BlockEnd {
  type: "block-end";
  index: number;
}

/** The call's usage as known so far; a later one replaces it. */
export interface UsageChunk {
  type: "usage";
  usage: Usage;
}

/**
 * The end of a reply. `reason` is `stop`, `length`, `tool-calls`, `content-filter`, `refusal`, `pause` (for a tool of
 * the provider's own), `aborted` (the provider gave up) or `other`; `raw` is the provider's own word where it is another
 * one.
 */
export interface FinishChunk {
  type: "finish";
  reason: string;
  raw?: string;
}

/**
 * A reply, whole or (with `interrupted`) as far as it came. `finish` is a reason of FinishChunk; `other` where the
 * stream gave none. Its event's `sources` are the chunks of this attempt, `[]` when the provider sent none. `written`: the
 * model wrote its calls as text, which those chunks hold.
 */
export interface AssistantMessage {
  turn: number;
  step: number;
  content: (TextBlock | ReasoningBlock | ImageBlock | ToolCallBlock | ToolResultBlock)[];
  provider: string;
  model: string;
  finish: string;
  usage?: Usage;
  interrupted?: boolean;
  replay?: Replay;
  written?: boolean;
}

/** A call is about to run. `arguments` is the model's text after the adapter's named repairs. */
export interface ToolCall {
  turn: number;
  step: number;
  callId: string;
  name: string;
  arguments: string;
}

/** The answer to a call, exactly as the model sees it. */
export interface ToolResult {
  turn: number;
  step: number;
  callId: string;
  content: (TextBlock | ImageBlock)[];
  isError: boolean;
  error?: ToolErrorInfo;
  meta?: string;
}

/** The whole header: `reason` is `initial`, `resume` or `fallback`. */
export interface RequestHeader {
  header: EpochHeader;
  reason: string;
}

/** What changed in the header. An empty `messagePrefix` says that there is none any more. */
export interface RequestHeaderDelta {
  system?: SystemDelta;
  tools?: ToolsDelta;
  config?: CallConfig;
  messagePrefix?: Message[];
}

/** A change of the system text by lines, split at `\n` only: leading lines kept, lines put in, trailing lines kept. */
export interface SystemDelta {
  keepStart: number;
  insert: string[];
  keepEnd: number;
}

/** A change of the tools by name: removed, changed in their place, added at the end. */
export interface ToolsDelta {
  removed: string[];
  changed: ToolSchema[];
  added: ToolSchema[];
}

/**
 * Bytes are about to leave for a provider. `bytes` counts the body, `sha256` is of the body, `requestSha256` of the
 * canonical Request, independent of any encoder. `purpose` is `step` or `summary`.
 */
export interface RequestSent {
  purpose: string;
  attempt: number;
  encoder: EncoderId;
  bytes: number;
  sha256: string;
  requestSha256: string;
  turn?: number;
  step?: number;
}

/** Which encoder made a body; its version rises when any byte may change. */
export interface EncoderId {
  name: string;
  version: number;
}

/** A further attempt follows after `delayMs` milliseconds; `code` is the kind of the error that caused it. */
export interface LlmRetry {
  turn: number;
  step: number;
  attempt: number;
  code: string;
  delayMs: number;
}

/**
 * A model's server said how large its window is, in tokens. `from` is the answer in which it stood: `models`, `props`,
 * `ps`, `loaded` or `info`.
 */
export interface ModelWindow {
  provider: string;
  model: string;
  contextWindow: number;
  from: string;
}

/** A plugin failed at a seam and the loop went on as that seam says: without it, or by refusing what it guarded. */
export interface PluginFailed {
  plugin: string;
  seam: string;
  message: string;
  turn?: number;
  step?: number;
}

/** A person is asked whether a call may run. */
export interface ApprovalAsked {
  id: string;
  callId: string;
  tool: string;
  subject: ApprovalSubject;
}

/** The answer: `outcome` is `allowed`, `denied` or `cancelled`, `scope` is `once` or `session`. */
export interface ApprovalDecided {
  id: string;
  outcome: "allowed" | "denied" | "cancelled";
  scope: "once" | "session";
  by: Source;
}

/** A compaction begins over the surface nodes `range`; with `config` and `instructions` its request can be rebuilt. */
export interface CompactStart {
  trigger: string;
  range: [number, number];
  instructions: string;
  config: CallConfig;
  turn?: number;
}

/** What a compaction's model wrote, and what it stands for. */
export interface CompactSummary {
  summary: string;
  shadowed: [number, number][];
  shadowedTokens: number;
  model: string;
  maxTokens: number;
  usage?: Usage;
}

/** A compaction is over; with `error` it changed nothing. `unused` are the summaries that were paid for and thrown away. */
export interface CompactEnd {
  error?: TurnError;
  unused?: UnusedSummary[];
}

/** What the summary of request `attempt` of a compaction cost, which did not land. */
export interface UnusedSummary {
  attempt: number;
  usage: Usage;
}

/** The session's name; the last one wins. */
export interface SessionTitle {
  title: string;
  by: Source;
}

/** Take the closed positional range between two current surface nodes, `start` and `end`, and put this event there. */
export interface Replace {
  op: "replace";
  start: number;
  end: number;
}
