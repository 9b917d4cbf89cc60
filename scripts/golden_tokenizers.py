"""Writes tokenizer/testdata: what the reference tokenizers make of a corpus of difficult texts.

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.3 protobuf==7.36.2 gguf==0.19.0
    venv/bin/python scripts/golden_tokenizers.py [--tiny tokenizer.json] [--models .models]

One byte-level BPE is trained without any pre-tokeniser, so that its merges cross every boundary a pre-tokeniser may
draw: a boundary too many or too few changes the ids. Each pre-tokeniser is then run over it, by the expressions that
published tokenizer.json files hold. SentencePiece models are trained in the configurations of Llama 2 and Gemma, and run
both by sentencepiece and, converted to tokenizer.json, by tokenizers. The vocabularies of the real models are taken out
of their GGUF files and run as they were published: SmolLM2's by tokenizers, Gemma's by sentencepiece.
"""
import argparse
import gzip
import io
import json
import pathlib
import random

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

from golden_texts import SPECIAL_TEXTS, TEXTS

OUT = pathlib.Path(__file__).parent.parent / "tokenizer" / "testdata"

REAL_TEXTS = TEXTS[:600]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
U, L = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = (r"[^\r\n\p{L}\p{N}]?" + U + "*" + L + r"+%s|[^\r\n\p{L}\p{N}]?" + U + "+" + L + r"*%s|\p{N}%s"
         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
DEEPSEEK_V3 = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
               "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# The cased letters that deepseek-llm's tokenizer.json lists, as code points.
CASED_LETTERS = """41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376-377 37B-37D 37F 386 388-38A 38C
38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A
1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC
1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2134
2139 213C-213F 2145-2149 214E 2183-2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2-2CF3 A640-A66D A680-A69B A722-A76F A771-A787
A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2
118A0-118DF 1E900-1E943"""


def ranges(text):
    out = ""
    for part in text.split():
        first, _, last = part.partition("-")
        a, b = int(first, 16), int(last or first, 16)
        out += chr(a) + ("" if b == a else chr(b) if b == a + 1 else "-" + chr(b))
    return out


def split(*patterns):
    return [Split(Regex(p), "isolated") for p in patterns]


PRE = {
    "gpt-2": [],
    "smollm": [Digits(individual_digits=True)],
    "default": split(r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "llama-bpe": split(CL100K % "{1,3}"),
    "qwen2": split(CL100K % ""),
    "gpt-4o": split(CASED % (CONTRACTION, CONTRACTION, "{1,3}")),
    "tekken": split(CASED % ("", "", "")),
    "deepseek-llm": split("[\r\n]", r"\s?[" + ranges(CASED_LETTERS) + "]+", "\\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", CJK)
    + [Digits(individual_digits=True)],
    "deepseek-coder": split("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK) + [Digits(individual_digits=True)],
    "deepseek-v3": split(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_V3),
}
GPT2_LAST = ("gpt-2", "smollm")  # their ByteLevel splits by GPT2 itself


def training_texts():
    rng = random.Random(7)
    words = " ".join(TEXTS).split(" ")
    for _ in range(4000):
        yield rng.choice(["", " "]) + " ".join(rng.choice(words)[:80] for _ in range(rng.randrange(1, 12)))
    yield from TEXTS


def byte_level():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tok.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(vocab_size=3000, special_tokens=specials, show_progress=False,
                                  initial_alphabet=ByteLevel.alphabet(), max_token_length=12)
    tok.train_from_iterator(training_texts(), trainer)
    base = json.loads(tok.to_str())
    runs = {}
    for name, stages in PRE.items():
        pre = Sequence(stages + [ByteLevel(add_prefix_space=False, use_regex=name in GPT2_LAST)])
        tok.pre_tokenizer = pre
        state = json.loads(tok.to_str())
        runs[name] = {
            "pre_tokenizer": state["pre_tokenizer"],
            "words": [[len(w) for w, _ in pre.pre_tokenize_str(t)] for t in TEXTS],
            "ids": [tok.encode(t).ids for t in TEXTS],
        }
        if name in ("llama-bpe", "tekken"):  # their published files ignore merges for whole words
            ignoring = dict(state, model=dict(state["model"], ignore_merges=True))
            runs[name]["ids"] = [i.ids for i in Tokenizer.from_str(json.dumps(ignoring)).encode_batch(TEXTS)]
    nfc = dict(base, normalizer={"type": "NFC"}, pre_tokenizer=runs["qwen2"]["pre_tokenizer"])
    runs["qwen2-nfc"] = {"ids": [i.ids for i in Tokenizer.from_str(json.dumps(nfc)).encode_batch(TEXTS)]}
    return {"json": base, "pre": runs}


def added_tokens(base):
    """Variants of a tokenizer.json whose added tokens strip, demand word boundaries or are normalised."""
    flags = [("<a>", {}), ("<l>", {"lstrip": True}), ("<r>", {"rstrip": True}), ("<lr>", {"lstrip": True, "rstrip": True}),
             ("wörd", {"single_word": True}), ("<ab", {}), ("<abc>", {"special": True}), ("Nm ", {"normalized": True}),
             ("fé", {"normalized": True})]
    size = len(base["model"]["vocab"])
    extra = [dict({"id": size + i, "content": c, "single_word": False, "lstrip": False, "rstrip": False,
                   "normalized": False, "special": False}, **f) for i, (c, f) in enumerate(flags)]
    out = []
    for normalizer in (None, {"type": "NFC"}, {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "x"}]}):
        state = dict(base, normalizer=normalizer, added_tokens=base["added_tokens"] + extra)
        tok = Tokenizer.from_str(json.dumps(state))
        run = {"normalizer": normalizer, "added": extra, "ids": [tok.encode(t).ids for t in SPECIAL_TEXTS]}
        tok.encode_special_tokens = True
        run["plain_ids"] = [tok.encode(t).ids for t in SPECIAL_TEXTS]
        out.append(run)
    return out


def sentencepiece_model(**options):
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=(t for t in training_texts() if t and len(t) < 4000), model_writer=model, model_type="bpe",
        vocab_size=1500, byte_fallback=True, normalization_rule_name="identity", character_coverage=0.995,
        num_threads=1, minloglevel=2, max_sentence_length=20000, **options)
    proto = pb.ModelProto.FromString(model.getvalue())
    return spm.SentencePieceProcessor(model_proto=model.getvalue()), proto


def merges_of(pieces, scores, types):
    """All pairs of pieces that make a piece, by its score: what converters write into tokenizer.json."""
    ids = {p: i for i, p in enumerate(pieces) if types[i] in (1, 4)}
    out = []
    for piece, i in ids.items():
        pairs = [(piece[:k], piece[k:]) for k in range(1, len(piece)) if piece[:k] in ids and piece[k:] in ids]
        out += [(-scores[i], ids[a], ids[b], a, b) for a, b in pairs]
    return [[a, b] for _, _, _, a, b in sorted(out, key=lambda m: m[:3])]


def sentencepiece_run(**options):
    sp, proto = sentencepiece_model(**options)
    pieces, types = [p.piece for p in proto.pieces], [p.type for p in proto.pieces]
    return {
        "tokens": pieces, "scores": [p.score for p in proto.pieces], "types": types,
        "add_space_prefix": proto.normalizer_spec.add_dummy_prefix,
        "remove_extra_whitespaces": proto.normalizer_spec.remove_extra_whitespaces,
        "ids": [sp.encode(t) for t in TEXTS],
    }


def spm_json(run, prefix):
    """tokenizer.json of a SentencePiece model, in the three ways that published files put the leading space."""
    normal = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    normalizer, pre = normal, {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    if prefix == "prepend":
        normalizer = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, normal]}
        pre = None
    elif prefix == "first":
        normalizer, pre = None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    elif prefix == "always-split":
        normalizer, pre = None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    ids = {t: i for i, t in enumerate(run["tokens"])}
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": run["types"][i] != 4} for t, i in ids.items() if run["types"][i] in (2, 3, 4)]
    merges = merges_of(run["tokens"], run["scores"], run["types"])
    bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": pre,
        "post_processor": {"type": "TemplateProcessing", "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [ids["<s>"]], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
            + ([] if prefix == "never" else [{"type": "Strip", "content": " ", "start": 1, "stop": 0}])},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": ids, "merges": merges},
    }


def json_run(state, texts):
    tok = Tokenizer.from_str(json.dumps(state))
    ids = [tok.encode(t).ids for t in texts]
    return {"json": state, "ids": ids, "decoded": [tok.decode(i[1:], skip_special_tokens=False) for i in ids]}


def gguf_fields(path):
    import gguf
    fields = gguf.GGUFReader(path).fields
    return {k.removeprefix("tokenizer.ggml."): v.contents() for k, v in fields.items() if k.startswith("tokenizer.ggml.")}


def smollm2_run(path):
    f = gguf_fields(path)
    vocab = {t: i for i, t in enumerate(f["tokens"])}
    tok = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in f["merges"]]))
    tok.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    tok.add_special_tokens([t for t, k in zip(f["tokens"], f["token_type"]) if k == 3])
    return [tok.encode(t).ids for t in REAL_TEXTS]


def gemma_run(path):
    f = gguf_fields(path)
    proto = pb.ModelProto()
    for text, score, kind in zip(f["tokens"], f["scores"], f["token_type"]):
        # GGUF stores the spaces of user-defined pieces as spaces; sentencepiece seeks them in normalised text.
        text = text.replace(" ", "▁") if kind == 4 else text
        proto.pieces.add(piece=text, score=score, type=kind)
    proto.trainer_spec.model_type = pb.TrainerSpec.BPE
    proto.trainer_spec.byte_fallback = True
    for name, key in (("unk", "unknown"), ("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        token = f[key + "_token_id"]
        setattr(proto.trainer_spec, name + "_id", token)
        setattr(proto.trainer_spec, name + "_piece", f["tokens"][token])
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = False
    proto.normalizer_spec.remove_extra_whitespaces = False
    sp = spm.SentencePieceProcessor(model_proto=proto.SerializeToString())
    return [sp.encode(t) for t in REAL_TEXTS]


def write(name, value):
    raw = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    buf = io.BytesIO()
    with gzip.GzipFile(fileobj=buf, mode="wb", compresslevel=9, mtime=0) as z:
        z.write(raw)
    (OUT / name).write_bytes(buf.getvalue())
    print(name, len(raw), "->", len(buf.getvalue()))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tiny", help="tokenizer.json of the embedded model")
    ap.add_argument("--models", help="folder that scripts/fetch_models.sh filled")
    args = ap.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    write("texts.json.gz", {"texts": TEXTS, "special": SPECIAL_TEXTS})
    bl = byte_level()
    bl["added"] = added_tokens(dict(bl["json"], pre_tokenizer=bl["pre"]["gpt-2"]["pre_tokenizer"]))
    write("bytelevel.json.gz", bl)
    sp = {"llama": sentencepiece_run(add_dummy_prefix=True, remove_extra_whitespaces=False, split_digits=True),
          "squeeze": sentencepiece_run(add_dummy_prefix=True, remove_extra_whitespaces=True, split_digits=True),
          "gemma": sentencepiece_run(add_dummy_prefix=False, remove_extra_whitespaces=False, split_digits=True,
                                     user_defined_symbols=["<table>", "\t\t", "\n\n", "\n\n\n", "▁▁", "▁▁▁▁"])}
    write("sentencepiece.json.gz", sp)
    plain = dict(sp["llama"])
    write("spmjson.json.gz", {
        "never": json_run(spm_json(sp["gemma"], "never"), TEXTS),
        "prepend": json_run(spm_json(plain, "prepend"), TEXTS + SPECIAL_TEXTS),
        "first": json_run(spm_json(plain, "first"), TEXTS + SPECIAL_TEXTS),
        "always-split": json_run(spm_json(plain, "always-split"), TEXTS + SPECIAL_TEXTS),
    })
    if args.tiny:
        state = json.loads(pathlib.Path(args.tiny).read_text())
        write("tiny.json.gz", json_run(state, TEXTS))
    if args.models:
        folder = pathlib.Path(args.models)
        write("real.json.gz", {"smollm2": smollm2_run(folder / "SmolLM2-135M-Instruct.Q4_1.gguf"),
                               "gemma3": gemma_run(folder / "gemma-3-270m-q4_k_m.gguf")})


if __name__ == "__main__":
    main()
