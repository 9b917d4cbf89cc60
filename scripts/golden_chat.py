"""Writes internal/chat/testdata/goldens.json: what transformers renders chat templates to.

    python3 -m venv venv && venv/bin/pip install transformers==5.24.0 jinja2==3.1.6 gguf==0.19.0
    venv/bin/python scripts/golden_chat.py --library "$(go list -m -f '{{.Dir}}' github.com/ardanlabs/jinja)" \\
        --models .models

Templates are those in internal/chat/testdata, those of published models that the Jinja library carries for its own
tests, and SmolLM2's out of its GGUF file. Only their SHA-256 is kept of the last two kinds.
"""
import argparse
import datetime
import hashlib
import json
import pathlib

from transformers.utils import chat_template_utils

OUT = pathlib.Path(__file__).parent.parent / "internal" / "chat" / "testdata"
NOW = datetime.datetime(2025, 3, 7, 14, 5, 9)

U, A, S = "user", "assistant", "system"
CONVERSATIONS = [
    [(U, "Hi")],
    [(S, "Be brief."), (U, "Hi")],
    [(U, "Hi"), (A, "Hello!"), (U, "How are you?")],
    [(S, "  You are\na pirate. \n"), (U, " What's 2+2? "), (A, "\n4\n"), (U, "é 日本 😀 <b>&amp;</b> \"q\" 'q' {{ x }} \\n")],
    [(U, "a"), (A, "<think>\nhm\n</think>\n\nb"), (U, "c"), (A, "<think>x</think>y")],
    [(U, "")],
    [(A, "I speak first")],
    [(U, "twice"), (U, "user")],
    [(S, "only system")],
    [(U, "1"), (A, "2"), (U, "3"), (A, "4"), (U, "5"), (A, "6"), (U, "7"), (A, "8"), (U, "9")],
]


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(*NOW.timetuple()[:6])


def render(template, conversation, generate, extra):
    messages = [{"role": r, "content": c} for r, c in conversation]
    try:
        out, _ = chat_template_utils.render_jinja_template(
            conversations=[messages], chat_template=template, add_generation_prompt=generate, bos_token="<s>",
            eos_token="</s>", **extra)
        return {"text": out[0]}
    except Exception as e:  # templates raise, and Jinja raises on what they do with odd conversations
        return {"error": str(e)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--library", required=True, help="folder of the Jinja library, with testdata/templates")
    ap.add_argument("--models", help="folder that scripts/fetch_models.sh filled")
    args = ap.parse_args()
    chat_template_utils.datetime = FixedDate

    sources = {p.name: p.read_text() for p in sorted(OUT.glob("*.jinja"))}
    own = set(sources)
    sources |= {"library/" + p.name: p.read_text() for p in sorted(pathlib.Path(args.library, "testdata/templates").glob("*"))}
    if args.models:
        import gguf
        fields = gguf.GGUFReader(pathlib.Path(args.models, "SmolLM2-135M-Instruct.Q4_1.gguf")).fields
        sources["gguf/SmolLM2-135M-Instruct.Q4_1.gguf"] = fields["tokenizer.chat_template"].contents()
    goldens = {}
    for name, template in sources.items():
        runs = []
        for i, conversation in enumerate(CONVERSATIONS):
            for generate in (False, True):
                runs.append({"conversation": i, "generate": generate, **render(template, conversation, generate, {})})
        runs.append({"conversation": 1, "generate": True, "thinking": False,
                     **render(template, CONVERSATIONS[1], True, {"enable_thinking": False})})
        goldens[name] = {"sha256": "" if name in own else hashlib.sha256(template.encode()).hexdigest(), "runs": runs}
        print(name, sum("text" in r for r in runs), "of", len(runs), "render")
    value = {"conversations": [[{"role": r, "content": c} for r, c in conv] for conv in CONVERSATIONS], "templates": goldens}
    (OUT / "goldens.json").write_text(json.dumps(value, ensure_ascii=False, indent=0) + "\n")


if __name__ == "__main__":
    main()
