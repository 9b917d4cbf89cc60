"""Texts that tokenizers get wrong, and random ones over one character or more of every class that expressions name."""
import random

HAND = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r\n\r\n", "\t", "\t\t", " \n", "\n ", " \n \n ", "a", "a ", " a", "  a", "a  b",
    "Hello world", "Hello, world! How are you?", "  leading and trailing  ", "a\nb", "a \n b", "a\r\nb\r\n\r\nc", "a   \n\n\n   b",
    "trailing newline\n", "trailing spaces   ", "tab\tseparated\t\tvalues\t", "\n\n\n\nmany\n\n\n\n\nbreaks\n", "x \t \n y",
    "don't can't I'm you're we've they'll he'd it's", "DON'T CAN'T I'M YOU'RE WE'VE THEY'LL HE'D IT'S", "Don'T I'LL we'Ve",
    "it'ſ long s", "'s't're", "''s", "rock'n'roll 'tis o'clock", "d'être l'été qu'il", "'", "'r", "'l", "'v", "x'", "'re", "'ll've",
    "1 12 123 1234 12345 123456 1234567 12345678 123456789 1234567890", "3.14159 -1e-10 0xDEADBEEF 1_000_000 1,234,567.89",
    "a1b22c333d4444", "2024-01-31T23:59:59Z", "½ ¼ Ⅷ ① ② ³ ² ٣٤٥ १२३ 一二三 ๑๒๓ 𝟙𝟚𝟛", "①②③④⑤ ⅠⅡⅢⅣ ½¾⅓",
    "for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; } // comment\n", "def f(x):\n    return x**2 if x >= 0 else -x\n\n\n",
    "\tif err != nil {\n\t\treturn fmt.Errorf(\"x: %w\", err)\n\t}\n", "<html><body class=\"x\">&nbsp;</body></html>",
    "https://example.com/path?q=1&r=%20#frag", "user@example.com", "C:\\Users\\x\\file.txt", "/usr/local/bin//", "a/b/c\n/d/\n",
    "!!!", "?!?!", "...", "…", "--- *** ___", "(a)[b]{c}<d>", "$100 €200 £300 ¥400", "a+b=c", "~`@#$%^&*()", "!\n", "!\r\n\n", "//\n/\n",
    "CamelCaseWords HTTPServer XMLHttpRequest iPhone eBay McDonald ABCdef ABCDEFg aBcDeF", "ǅungla ǈubljana ǋegoš", "ʰʷaʰ ªº",
    "ÀÉÎÕÜ àéîõü ß ẞ ﬁ ﬂ ﬆ", "e\u0301 a\u0300\u0301\u0302 n\u0303", "\u0301", " \u0301", "\u0301a", "A\u0301B\u0301c\u0301", "Z̤͔ͧ̑̓ä͖̭̈̇lͮ̒ͫǧ̗͚̚o̙̔ͮ̇͐̇",
    "Привет, мир! ПРИВЕТ", "Γειά σου Κόσμε Ὀδυσσεύς ᾼ ῼ", "שלום עולם", "مرحبا بالعالم ١٢٣", "नमस्ते दुनिया", "สวัสดีชาวโลก", "ສະບາຍດີ",
    "こんにちは世界", "カタカナ　ひらがな", "你好，世界！", "中文English混合123", "안녕하세요 세계", "ᄀᄁᄂ", "வணக்கம்", "ಕನ್ನಡ", "ខ្មែរ", "မြန်မာ",
    "ქართული ᲥᲐᲠᲗᲣᲚᲘ", "Հայերեն", "ᏣᎳᎩ ꮳꮃꭹ", "አማርኛ", "Ⴀⴀ", "𐐀𐐨 𐒰𐓘 𞤀𞤢", "𝒜𝓫𝔠", "𠀀𠮷", "ꙮ", "Ⱡⱡ ⱻ ⱼ", "꞊ꞋꞌꞍ",
    "😀😃😄", "👩‍👩‍👧‍👦 family", "👍🏽", "🇩🇪🇫🇷", "❤️", "1️⃣2️⃣", "©®™", "→⇒∀∃∑√", "♠♣♥♦", "a😀b", " 😀 ", "☺\u200d",
    "\u00a0", "a\u00a0b", "\u00a0\u00a0x", "\u2003em\u2002en\u2009thin", "\u3000全角", "\u200bzero\u200bwidth", "\ufeffbom", "\u2028line\u2029para",
    "\u0085nel\u0085", "\x0b\x0c", "\u180emvs", "\u202fnnbsp", "\u2060wj", "\u200e\u200fmarks", "x\u1680y", " \u00a0 \u3000 \n\u00a0",
    "\x00", "a\x00b", "\x01\x02\x03", "\x1b[31mred\x1b[0m", "\x7f\x80\x9f", "\ud7ff\ue000\ufdd0\ufffd\uffff\U0010ffff", "\U000e0001", "\u0378",
    "▁", "▁▁", "a▁b", " ▁ ", "▁ a", "<s>", "</s>", "<unk>", "<0x0A>", "<0x41>", "<|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n", "<|im", "|>",
    "text<|endoftext|>text", "<|endoftext|><|endoftext|>", " <|endoftext|> ", "<|endoftext|", "<table>x</table>", "\n\n\n\n\n<table>", "[INST] hi [/INST]",
    "\r", "\r\r", "\n\r", "a\rb", " \r ", "\r \n", "\t\n\t\n", "  \n  \n  x", "x\n\n  y", "。，、！？", "　。", "‘’“”‟", "！／：～", "a。b", "Éa éA ÉÉ", "É!a",
    "key: value\n- item\n- item2\n\n## Title\n\n```go\nx := 1\n```\n", "| a | b |\n|---|---|\n| 1 | 2 |\n", "E = mc² and H₂O, x₁⁺", "Ünïcödé ＡＢＣ ａｂｃ １２３",
    "naïve café résumé — “quotes” – dash", "supercalifragilisticexpialidocious antidisestablishmentarianism",
]
LONG = ["a", " ", "\n", "1", "!", "é", "日", "\u0301", " \n", "ab", "a ", "\r\n", "\t", "'s", "Aa", "カA", "▁", "😀", "a1!", "\u3000", "ᄀ ", "\x00", "<"]

CLASSES = list("aabbzAAZs ts") + list("'''  \n\r\t") + [
    "ſ", "é", "É", "ß", "ǅ", "ʰ", "ª", "日", "龥", "龦", "あ", "ー", "가", "ࠀ", "क", "ा", "\u0301", "\u20dd", "ﬁ", "K", "Ω", "ι", "𐐀", "𞤢",
    "0", "1", "9", "٣", "Ⅷ", "½", "²", "①", "!", ".", ",", "/", "_", "-", "$", "+", "<", "=", "^", "`", "|", "~", "\"", "\\", "[", "€", "。", "！", "“", "«", "…",
    "😀", "\u200d", "\ufe0f", "\u00a0", "\u3000", "\u2028", "\u0085", "\x0b", "\x00", "\x1f", "\u200b", "\ufeff", "\ue000", "\ufffd", "▁",
    "'ll", "'RE", "'s", "  ", "\r\n", "\n\n", " a", "the", " The", "123", "4567"]


def _random_texts(n):
    rng = random.Random(1)
    return ["".join(rng.choice(CLASSES) for _ in range(rng.randrange(1, 20))) for _ in range(n)]


TEXTS = HAND + [(u * 10000)[:10000] for u in LONG] + [("x" + u * 300 + "y") for u in LONG] + _random_texts(900)

SPECIAL_TEXTS = [
    "<a>", "x<a>y", "x <a> y", "x <l> y", "x  <l>  y", "x <r> y", "x  \n <lr> \n y", "<lr><lr>", " <lr> <lr> ", "<l><r>", "wörd", "wörds", "awörd", "a wörd b",
    "_wörd", "wörd!", "wörd1", "<ab", "<abc>", "<abc", "<abc><a>", "x<abc>y", "Nm x", "aNm b", "e\u0301", "é", "caf\u0065\u0301", "<|im_start|>user\nhi<|im_end|>",
    "<|endoftext|>", " <|endoftext|> ", "a<|endoftext|>b <|im_end|>", "<s>", "<s>x", "x<s> y", "</s></s>", "<unk>x", "<s> <s>  ", "x</s>\n",
]
