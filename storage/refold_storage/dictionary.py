"""Owns the preset dictionary that records are deflated with: a constant of format version 0.

Every record of every store of this version was written with exactly these bytes, so they never change: another text is
another format version, and a test pins their digest. The lines are typical events, the most frequent kind last, because
deflate spends fewer bits on what is near. Knows nothing of events beyond their looks.
"""

from __future__ import annotations

from typing import Final

PRESET_DICTIONARY: Final = (
    b'"status":"pending","status":"in_progress","status":"completed","todo/write","data":{"todos":[{"content":"'
    b'{"type":"session/title","seq":0,"time":17,"data":{"title":"","by":{"kind":"loop"}}}\n'
    b'{"type":"context/message","data":{"content":[{"type":"image","mediaType":"image/png","blob":"'
    b'"envelope":"context","envelope":"raw","source":{"kind":"plugin","name":"'
    b'{"type":"compact/summary","data":{"summary":"","shadowed":[[0,1]],"shadowedTokens":1000,"maxTokens":8192,'
    b'{"type":"compact/start","data":{"trigger":"pressure","range":[0,1],"instructions":"","config":{'
    b'{"type":"compact/end","data":{}}\n{"type":"llm/retry","data":{"attempt":1,"code":"provider.overloaded","delayMs":'
    b'{"type":"approval/asked","data":{"id":"","callId":"call_1_1_1","tool":"run_command","subject":{"kind":"command",'
    b'{"type":"approval/decided","data":{"id":"","outcome":"allowed","outcome":"denied","scope":"once","by":{"kind":"cli"}}}\n'
    b'{"type":"steering/message","surfaceOp":{"op":"replace","start":0,"end":'
    b'{"type":"input/settled","data":{"input":"","how":"withdrawn","reason":"'
    b'{"type":"session/settings","data":{"model":"","effort":"high","permissions":{"mode":"ask"},"limits":{"steps":50}}}\n'
    b'{"type":"instance/start","data":{"instance":1,"reason":"new","reason":"resume","client":{"name":"","version":"'
    b'{"type":"request/header-delta","data":{"tools":{"removed":[],"changed":[],"added":['
    b'{"type":"request/header","data":{"header":{"config":{"provider":"","model":"","dialect":"chat-completions",'
    b'"dialectOptions":"{\\"","temperature":0,"topP":1,"maxTokens":4096,"reasoningEffort":"medium"},"system":"You are ",'
    b'"tools":[{"name":"list_files","description":"","parameters":"{\\"type\\":\\"object\\",\\"properties\\":{'
    b'\\"path\\":{\\"type\\":\\"string\\",\\"description\\":\\"\\"},\\"pattern\\":{\\"type\\":\\"string\\"},'
    b'\\"startLine\\":{\\"type\\":\\"integer\\"},\\"required\\":[\\"path\\"],\\"additionalProperties\\":false}"}]},'
    b'"reason":"initial"}}\n'
    b'{"type":"turn/end","data":{"turn":1,"reason":{"kind":"error","error":{"kind":"provider.","message":"'
    b'{"type":"turn/end","data":{"turn":1,"reason":{"kind":"aborted","cause":{"kind":"user"}}}}\n'
    b'{"type":"step/end","data":{"turn":1,"step":1,"outcome":"aborted"}}\n'
    b'{"type":"input/accepted","seq":1,"time":17,"data":{"input":"01","mode":"prompt","content":[{"type":"text","text":"'
    b'"}],"source":{"kind":"client","name":"nvim"}}}\n'
    b'{"type":"turn/start","seq":2,"time":17,"data":{"turn":1,"trigger":{"kind":"message","source":{"kind":"cli"},"input":"01'
    b'{"type":"user/message","seq":3,"time":17,"data":{"content":[{"type":"text","text":"'
    b'"}],"source":{"kind":"client"},"input":"01"},"surfaceOp":"append"}\n'
    b'{"type":"tool/call","seq":7,"time":17,"data":{"turn":1,"step":1,"callId":"call_","name":"search_text","arguments":"{\\"'
    b'{"type":"tool/result","seq":8,"time":17,"data":{"turn":1,"step":1,"callId":"call_","content":[{"type":"text","text":"'
    b'"}],"isError":true,"error":{"name":"ToolError","code":"'
    b'"}],"isError":false},"surfaceOp":"append"}\n'
    b'{"type":"assistant/message","seq":6,"time":17,"data":{"turn":1,"step":1,"content":[{"type":"tool-call","id":"call_",'
    b'"name":"read_file","arguments":"{\\"path\\":\\""}],"provider":"","model":"","finish":"length","interrupted":true,'
    b'"content":[{"type":"reasoning","text":"","content":[{"type":"text","text":"'
    b'"}],"provider":"","model":"","finish":"tool-calls","finish":"stop","usage":{"inputTokens":1000,"outputTokens":100,'
    b'"cacheReadTokens":1000,"cacheWriteTokens":0,"reasoningTokens":10}},"surfaceOp":"append","sources":[[1,9]]}\n'
    b'{"type":"turn/end","seq":9,"time":17,"data":{"turn":1,"reason":{"kind":"completed"}}}\n'
    b'{"type":"step/end","seq":9,"time":17,"data":{"turn":1,"step":1}}\n'
    b'{"type":"step/start","seq":3,"time":17,"data":{"turn":1,"step":1}}\n'
    b'{"type":"request/sent","seq":4,"time":17,"data":{"purpose":"step","attempt":1,"encoder":{"name":"chat-completions",'
    b'"version":1},"bytes":10000,"sha256":"0","requestSha256":"0","turn":1,"step":1},"ignorable":true}\n'
    b'{"type":"assistant/chunk","seq":5,"time":17,"data":{"turn":1,"step":1,"attempt":1,"chunk":{"type":"usage","usage":{'
    b'"inputTokens":1000,"outputTokens":100,"cacheReadTokens":1000}}}}\n'
    b'"chunk":{"type":"finish","reason":"tool-calls"}}}\n"chunk":{"type":"finish","reason":"stop"}}}\n'
    b'"chunk":{"type":"block-start","index":1,"block":"tool-call","id":"call_","name":"list_files"}}}\n'
    b'"chunk":{"type":"block-start","index":0,"block":"reasoning"}}}\n'
    b'"chunk":{"type":"block-start","index":0,"block":"text"}}}\n"chunk":{"type":"block-end","index":0}}}\n'
    b'"chunk":{"type":"tool-call-delta","index":0,"arguments":"\\"}"}}}\n'
    b'"chunk":{"type":"reasoning-delta","index":0,"text":" the"}}}\n'
    b'{"type":"assistant/chunk","seq":10,"time":17,"data":{"turn":1,"step":1,"attempt":1,"chunk":{"type":"text-delta",'
    b'"index":0,"text":" a"}}}\n'
    b'{"type":"assistant/chunk","seq":11,"time":17,"data":{"turn":1,"step":1,"attempt":1,"chunk":{"type":"text-delta",'
    b'"index":0,"text":" the"}}}\n'
)
"""About five kilobytes of JSON, never parsed."""
