"""jinja2 as Hugging Face's apply_chat_template sets it up, and ours beside it.

Needs python3-jinja2 (Debian's 3.1.2 was used). Not part of CI: what CI checks are golden files
written by template_goldens.py.
"""
import copy
import datetime
import json
import subprocess

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = 1_700_000_000  # as in tests/engine/template/render_main.cc


class GenerationTracker(jinja2.ext.Extension):
    """{% generation %}: a call block whose place in the output is noted."""

    tags = {"generation"}

    def __init__(self, environment):
        super().__init__(environment)
        environment.generation_spans = []
        environment.blocks_so_far = []

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_note")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _note(self, caller):
        text = caller()
        start = sum(map(len, self.environment.blocks_so_far))
        self.environment.generation_spans.append((start, start + len(text)))
        return text


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)


def make_environment():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[GenerationTracker, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


ENVIRONMENT = make_environment()


def render(template, context):
    """{"text", "generation" (byte offsets)} or {"error"}, as render_main.cc answers."""
    ENVIRONMENT.generation_spans = []
    ENVIRONMENT.blocks_so_far = blocks = []
    try:
        for block in ENVIRONMENT.from_string(template).generate(**copy.deepcopy(context)):
            blocks.append(block)
        text = "".join(blocks)
        text.encode()
    except RecursionError:
        return {"error": "RecursionError"}
    except Exception as error:  # Whatever a template can raise.
        return {"error": f"{type(error).__name__}: {error}"}
    spans = [[len(text[:a].encode()), len(text[:b].encode())]
             for a, b in ENVIRONMENT.generation_spans if b > a]
    return {"text": text, "generation": spans}


class Ours:
    """The binary penstock_template_render, kept running."""

    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, context):
        request = json.dumps({"template": template, "context": context}, allow_nan=False)
        self.process.stdin.write(request.encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the renderer died: {self.process.wait()} on {request}")
        return json.loads(answer)


def same(theirs, ours):
    """Both refuse, or both give the same bytes. Spans are compared by the caller."""
    if "error" in theirs or "error" in ours:
        return "error" in theirs and "error" in ours
    return theirs["text"] == ours["text"]
