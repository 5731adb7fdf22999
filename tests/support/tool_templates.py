"""Small chat templates that write tools and calls as those of many families do."""

from __future__ import annotations

BAR = "\uff5c"
_ARGUMENTS = "{{ f.arguments | tojson }}"


def _pairs(form: str, between: str = "") -> str:
    """Each argument in this form, with names k and v."""
    last = f"{{% if not loop.last %}}{between}{{% endif %}}" if between else ""
    return f"{{% for k, v in f.arguments.items() %}}{form}{last}{{% endfor %}}"


_PLAIN = "{{ v if v is string else v | tojson }}"


def _template(
    call: str, begin: str = "", end: str = "", between: str = "", *, lead: str = "", stop: str = ""
) -> str:
    last = f"{{% if not loop.last %}}{between}{{% endif %}}" if between else ""
    return (
        "{% if tools %}<|tools|>{{ tools | tojson }}<|end|>{% endif %}"
        "{% for m in messages %}{% if m.role == 'tool' %}<|tool|>{{ m.content }}<|end|>"
        "{% else %}<|{{ m.role }}|>{{ m.content or '' }}{% if m.tool_calls %}"
        f"{{% if m.content %}}{lead}{{% endif %}}{begin}"
        f"{{% for c in m.tool_calls %}}{{% set f = c.function %}}{call}{last}{{% endfor %}}{end}"
        "{% endif %}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )


_QUOTE = '<|"|>'
_GEMMA_VALUE = (
    f"{{% if v is string %}}{_QUOTE}{{{{ v }}}}{_QUOTE}{{% else %}}{{{{ v }}}}{{% endif %}}"
)
_DSML_TYPE = "{{ 'true' if v is string else 'false' }}"

TEMPLATES = {
    "hermes": _template(
        '<tool_call>\n{"name": "{{ f.name }}", "arguments": ' + _ARGUMENTS + "}\n</tool_call>",
        between="{{ '\n' }}",
        lead="{{ '\n' }}",
    ),
    "qwen3-xml": _template(
        "<tool_call>\n<function={{ f.name }}>\n"
        + _pairs("<parameter={{ k }}>\n" + _PLAIN + "{{ '\n' }}</parameter>{{ '\n' }}")
        + "</function>\n</tool_call>",
        between="{{ '\n' }}",
        lead="{{ '\n' }}",
    ),
    "glm-4.5": _template(
        "{{ '\n' }}<tool_call>{{ f.name }}{{ '\n' }}"
        + _pairs("<arg_key>{{ k }}</arg_key>\n<arg_value>" + _PLAIN + "</arg_value>{{ '\n' }}")
        + "</tool_call>"
    ),
    "glm-4.7": _template(
        "<tool_call>{{ f.name }}"
        + _pairs("<arg_key>{{ k }}</arg_key><arg_value>" + _PLAIN + "</arg_value>")
        + "</tool_call>"
    ),
    "kimi-k2": _template(
        "<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>"
        + _ARGUMENTS
        + "<|tool_call_end|>",
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
    ),
    "kimi-k3": _template(
        '<|open|>call tool="{{ f.name }}" index="{{ loop.index }}"<|sep|>'
        + _pairs(
            "<|open|>argument key=\"{{ k }}\" type=\"{{ 'string' if v is string else 'number' }}\""
            "<|sep|>" + _PLAIN + "<|close|>argument<|sep|>"
        )
        + "<|close|>call<|sep|>",
        "<|open|>tools<|sep|>",
        "<|close|>tools<|sep|>",
    ),
    "deepseek-v3": _template(
        f"<{BAR}tool▁call▁begin{BAR}>function<{BAR}tool▁sep{BAR}>{{{{ f.name }}}}\n```json\n"
        f"{_ARGUMENTS}\n```<{BAR}tool▁call▁end{BAR}>",
        f"<{BAR}tool▁calls▁begin{BAR}>",
        f"<{BAR}tool▁calls▁end{BAR}>",
        "{{ '\n' }}",
    ),
    "deepseek-v3.1": _template(
        f"<{BAR}tool▁call▁begin{BAR}>{{{{ f.name }}}}<{BAR}tool▁sep{BAR}>{{{{ '' + f.arguments }}}}"
        f"<{BAR}tool▁call▁end{BAR}>",
        f"<{BAR}tool▁calls▁begin{BAR}>",
        f"<{BAR}tool▁calls▁end{BAR}>",
    ),
    "deepseek-v3.2": _template(
        f'<{BAR}DSML{BAR}invoke name="{{{{ f.name }}}}">\n'
        + _pairs(
            f'<{BAR}DSML{BAR}parameter name="{{{{ k }}}}" string="{_DSML_TYPE}">{_PLAIN}'
            f"</{BAR}DSML{BAR}parameter>{{{{ '\n' }}}}"
        )
        + f"</{BAR}DSML{BAR}invoke>{{{{ '\n' }}}}",
        f"\n\n<{BAR}DSML{BAR}function_calls>\n",
        f"</{BAR}DSML{BAR}function_calls>",
    ),
    "minimax": _template(
        '<invoke name="{{ f.name }}">\n'
        + _pairs('<parameter name="{{ k }}">' + _PLAIN + "</parameter>{{ '\n' }}")
        + "</invoke>{{ '\n' }}",
        "\n<minimax:tool_call>\n",
        "</minimax:tool_call>",
    ),
    "mistral-v3": _template(
        '{"name": "{{ f.name }}", "arguments": ' + _ARGUMENTS + "}", "[TOOL_CALLS] [", "]", ", "
    ),
    "mistral-v11": _template("[TOOL_CALLS]{{ f.name }}[ARGS]" + _ARGUMENTS),
    "gemma-4": _template(
        "<|tool_call>call:{{ f.name + '{' }}"
        + _pairs("{{ k }}:" + _GEMMA_VALUE, ",")
        + "}<tool_call|>"
    ),
    "lfm2": _template(
        "{{ f.name }}(" + _pairs("{{ k }}={{ v | tojson }}", ", ") + ")",
        "<|tool_call_start|>[",
        "]<|tool_call_end|>",
        ", ",
    ),
    "llama-4": _template(
        "{{ f.name }}(" + _pairs("{{ k }}={{ v | tojson }}", ", ") + ")", "[", "]", ", "
    ),
    "llama-3": _template(
        '{"name": "{{ f.name }}", "parameters": ' + _ARGUMENTS + "}", between="; "
    ),
    "cohere": _template(
        '{"tool_call_id": "{{ loop.index0 }}", "tool_name": "{{ f.name }}", "parameters": '
        + _ARGUMENTS
        + "}",
        "<|START_ACTION|>[\n    ",
        "\n]<|END_ACTION|>",
        ",\n    ",
    ),
    "phi-4": _template(
        '{"name": "{{ f.name }}", "arguments": ' + _ARGUMENTS + "}",
        "<|tool_call|>[",
        "]<|/tool_call|>",
        ", ",
    ),
    "function-tags": _template("<function={{ f.name }}>" + _ARGUMENTS + "</function>"),
    "gpt-oss": (
        "{% if tools %}<|start|>developer<|message|>{{ tools | tojson }}<|end|>{% endif %}"
        "{% for m in messages %}{% if m.role == 'tool' %}"
        "<|start|>functions.{{ m.name }} to=assistant<|channel|>commentary<|message|>"
        "{{ m.content | tojson }}<|end|>{% elif m.tool_calls %}"
        "{% for c in m.tool_calls %}<|start|>assistant to=functions.{{ c.function.name }}"
        "<|channel|>commentary json<|message|>{{ c.function.arguments | tojson }}<|call|>"
        "{% endfor %}{% elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>"
        "{{ m.content }}<|end|>{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
    ),
}
