"""Formats of families by name, where a template does not show its format."""

from __future__ import annotations

from engine.frontend.tool_formats.formats import Kind, ToolFormat

GENERIC = ToolFormat(Kind.JSON, "<tool_call>\n", "\n</tool_call>", lead="\n", between="\n")
HARMONY = ToolFormat(Kind.HARMONY)
_BAR = "\uff5c"  # in markers of DeepSeek
_DSML = f"{_BAR}DSML{_BAR}"


FORMATS = {
    "qwen3-xml": ToolFormat(
        Kind.TAGGED,
        begin="<tool_call>\n<function=",
        name_end=">\n",
        key_begin="<parameter=",
        key_end=">\n",
        value_end="\n</parameter>",
        key_sep="\n",
        end="\n</function>\n</tool_call>",
        lead="\n",
        between="\n",
    ),
    "glm-4.5": ToolFormat(
        Kind.TAGGED,
        begin="<tool_call>",
        name_end="\n",
        key_begin="<arg_key>",
        key_end="</arg_key>\n<arg_value>",
        value_end="</arg_value>",
        key_sep="\n",
        end="\n</tool_call>",
        lead="\n",
        between="\n",
    ),
    "kimi-k2": ToolFormat(
        Kind.NAMED,
        begin="<|tool_call_begin|>",
        name_prefix="functions.",
        name_end="<|tool_call_argument_begin|>",
        end="<|tool_call_end|>",
        section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ),
    "kimi-k3": ToolFormat(
        Kind.TAGGED,
        begin='<|open|>call tool="',
        name_end='" index="1"<|sep|>',
        key_begin='<|open|>argument key="',
        key_end='" type="string"<|sep|>',
        value_end="<|close|>argument<|sep|>",
        end="<|close|>call<|sep|>",
        section=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
        noise=("<|close|>response<|sep|>", "<|open|>response<|sep|>", "<|close|>message<|sep|>"),
    ),
    "deepseek-v3.1": ToolFormat(
        Kind.NAMED,
        begin="<\uff5ctool▁call▁begin\uff5c>",
        name_end="<\uff5ctool▁sep\uff5c>",
        end="<\uff5ctool▁call▁end\uff5c>",
        section=("<\uff5ctool▁calls▁begin\uff5c>", "<\uff5ctool▁calls▁end\uff5c>"),
    ),
    "deepseek-v3.2": ToolFormat(
        Kind.TAGGED,
        begin=f'<{_DSML}invoke name="',
        name_end='">\n',
        key_begin=f'<{_DSML}parameter name="',
        key_end='" string="true">',
        value_end=f"</{_DSML}parameter>",
        end=f"\n</{_DSML}invoke>",
        section=(f"<{_DSML}function_calls>\n", f"\n</{_DSML}function_calls>"),
        key_sep="\n",
        between="\n",
        lead="\n\n",
    ),
    "mistral-v3": ToolFormat(Kind.JSON, "[TOOL_CALLS]", is_list=True, id_key="id"),
    "mistral-v11": ToolFormat(
        Kind.NAMED, begin="[TOOL_CALLS]", name_end="[ARGS]", id_marker="[CALL_ID]"
    ),
    "llama-3": ToolFormat(
        Kind.JSON, arguments_key="parameters", at_start=True, noise=("<|python_tag|>",)
    ),
    "llama-4": ToolFormat(Kind.PYTHON, at_start=True, noise=("<|python_start|>", "<|python_end|>")),
    "lfm2": ToolFormat(Kind.PYTHON, "<|tool_call_start|>", "<|tool_call_end|>"),
    "gemma-4": ToolFormat(Kind.GEMMA, "<|tool_call>call:", "<tool_call|>"),
    "cohere": ToolFormat(
        Kind.JSON,
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        name_key="tool_name",
        arguments_key="parameters",
        id_key="tool_call_id",
        is_list=True,
    ),
}
# Texts in the sources of templates whose calls cannot be learned, and their formats.
KNOWN = (
    ("<|tool_calls_section_begin|>", "kimi-k2"),
    ("<|open|>", "kimi-k3"),
    (f"<{_BAR}tool\u2581call\u2581begin{_BAR}>", "deepseek-v3.1"),
    (_DSML, "deepseek-v3.2"),
    ("<|tool_call>call:", "gemma-4"),
    ("<|tool_call_start|>", "lfm2"),
    ("[ARGS]", "mistral-v11"),
    ("[TOOL_CALLS]", "mistral-v3"),
    ("<|START_ACTION|>", "cohere"),
    ("<arg_key>", "glm-4.5"),
    ("<function=", "qwen3-xml"),
    ("<|python_start|>", "llama-4"),
    ("<|python_tag|>", "llama-3"),
)
