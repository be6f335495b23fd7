"""Two tiny models for a real inference engine, written as GGUF files in milliseconds and never downloaded.

*chain* has weights that somebody chose: embeddings are one-hot, attention and feed-forward are zero, and the output matrix
says which token follows which. One token of its vocabulary is a whole tool call, so with tools it calls, and after a
result it speaks the alphabet. *random* has random weights: it babbles for as long as it may, and takes no tools, because
an engine that looks for calls in noise finds broken ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Final

import gguf
import numpy as np
from numpy.typing import NDArray

CONTEXT: Final = 32_768
"""Tokens of each model's window. A token is one ASCII character, or one byte of any other."""

SPOKEN: Final = ascii_lowercase
"""What the chain model says when it speaks."""

_HEAD: Final = 64
_CALL_NEXT: Final = "#"
_SPEAK_NEXT: Final = "@"

_CHAIN_TEMPLATE: Final = (
    "{%- if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>{% endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'assistant' %}"
    "{{ '@' if loop.previtem.role == 'tool' or not tools else '#' }}{{ message.content or '' }}"
    "{%- for call in message.tool_calls or [] %}"
    '<tool_call>\n{"name": "{{ call.function.name }}", "arguments": '
    "{{ call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}}\n</tool_call>"
    "{%- endfor %}"
    "{%- elif message.role == 'tool' %}<result>{{ message.content }}</result>"
    "{%- else %}<{{ message.role }}>{{ message.content }}</{{ message.role }}>"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '@' if messages[-1].role == 'tool' or not tools else '#' }}{% endif %}"
)
_RANDOM_TEMPLATE: Final = (
    "{%- for message in messages %}<{{ message.role }}>{{ message.content }}</{{ message.role }}>{% endfor %}"
    "{%- if add_generation_prompt %}<assistant>{% endif %}"
)


def write_chain_model(path: Path, name: str, arguments: Mapping[str, object], *, endless: bool = False) -> Path:
    """Write a model that calls the tool `name` with `arguments` when it is offered any, and else speaks SPOKEN; `endless`
    makes it begin again at the letter a, for ever."""
    vocabulary = _Vocabulary()
    call = f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(dict(arguments))}}}\n</tool_call>'
    spoken = vocabulary.add(call)
    after = dict(zip(map(vocabulary.of, SPOKEN), map(vocabulary.of, SPOKEN[1:]), strict=False))
    after |= {vocabulary.of(_CALL_NEXT): spoken, spoken: _END, vocabulary.of(_SPEAK_NEXT): vocabulary.of(SPOKEN[0])}
    after[vocabulary.of(SPOKEN[-1])] = vocabulary.of(SPOKEN[0]) if endless else _END
    size = len(vocabulary.tokens)
    width = -(-size // _HEAD) * _HEAD
    embedding = np.eye(size, width, dtype=np.float32)
    output = np.zeros((size, width), np.float32)
    for token in range(size):
        output[after.get(token, vocabulary.of(SPOKEN[0])), token] = 1
    nothing = np.zeros((width, width), np.float32)
    layer = {"attn_q": nothing, "attn_k": nothing, "attn_v": nothing, "attn_output": nothing}
    _write(path, vocabulary, _CHAIN_TEMPLATE, embedding, output, layer)
    return path


def write_random_model(path: Path, *, seed: int = 1) -> Path:
    """Write a model that answers anything with letters without sense."""
    vocabulary = _Vocabulary()
    random = np.random.default_rng(seed)
    size, width = len(vocabulary.tokens), 2 * _HEAD

    def weights(rows: int, columns: int) -> NDArray[np.float32]:
        return random.standard_normal((rows, columns), np.float32) / np.float32(np.sqrt(columns))

    output = weights(size, width) * 4
    letters = [vocabulary.of(letter) for letter in SPOKEN]
    output[[token for token in range(size) if token not in letters]] = 0  # a score that the best letter exceeds
    layer = {name: weights(width, width) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
    _write(path, vocabulary, _RANDOM_TEMPLATE, weights(size, width), output, layer)
    return path


_END: Final = 2


class _Vocabulary:
    """Tokens: unknown, begin, end, the 256 bytes, the printable ASCII characters, and what is added."""

    def __init__(self) -> None:
        self.tokens: list[bytes] = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
        self.kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
        self.kinds += [gguf.TokenType.BYTE] * 256
        self._places = {chr(code): self.add(chr(code)) for code in range(32, 127)}

    def add(self, text: str) -> int:
        """Add a token and give its number. The tokenizer writes a space as U+2581."""
        self.tokens.append(text.replace(" ", "\u2581").encode())
        self.kinds.append(gguf.TokenType.NORMAL)
        return len(self.tokens) - 1

    def of(self, character: str) -> int:
        """Give the number of a printable ASCII character's token."""
        return self._places[character]


def _write(
    path: Path,
    vocabulary: _Vocabulary,
    template: str,
    embedding: NDArray[np.float32],
    output: NDArray[np.float32],
    attention: Mapping[str, NDArray[np.float32]],
) -> None:
    width, hidden = embedding.shape[1], 32
    writer: Any = gguf.GGUFWriter(str(path), "llama")
    _describe(writer, vocabulary, template, width, hidden)
    ones = np.ones(width, np.float32)
    tensors = {"token_embd": embedding, "output_norm": ones, "output": output}
    tensors |= {f"blk.0.{name}": tensor for name, tensor in attention.items()}
    tensors |= {"blk.0.attn_norm": ones, "blk.0.ffn_norm": ones}
    tensors |= {f"blk.0.{name}": np.zeros((hidden, width), np.float32) for name in ("ffn_gate", "ffn_up")}
    tensors["blk.0.ffn_down"] = np.zeros((width, hidden), np.float32)
    for name, tensor in tensors.items():
        writer.add_tensor(f"{name}.weight", tensor if tensor.ndim == 1 else tensor.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: Any, vocabulary: _Vocabulary, template: str, width: int, hidden: int) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_scores([0.0] * len(vocabulary.tokens))
    writer.add_token_types(vocabulary.kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(_END)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(template)
    writer.add_vocab_size(len(vocabulary.tokens))
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(width // _HEAD)
    writer.add_head_count_kv(width // _HEAD)
    writer.add_rope_dimension_count(_HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
