"""Small tokenizers that between them use every component that Penstock reads.

Each is trained on a few sentences, so its file is small; the same library gives the same file
again. Needs PyPI tokenizers. tokenizer_goldens.py and tokenizer_conformance.py use them.
"""
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

SENTENCES = """The quick brown fox jumps over the lazy dog, and the dog doesn't mind.
It's 1999 or 2024; we'll see what they've done, won't we? THE END.
Die Straße führt über Brücken; le garçon a mangé des crêpes à Noël.
Быстрая лиса прыгает через ленивую собаку. Привет, мир!
敏捷的棕色狐狸跳过懒狗。日本語のテキストもあります。한국어 문장도 있습니다.
def main():\n    for i in range(10):\n        print(i, "hello world")\n
नमस्ते दुनिया, यह एक परीक्षण है। مرحبا بالعالم، هذا اختبار.
😀 😃 👍🏽 naïve café ﬁne ½ x² Ⅷ the the the there then""".split("\n")

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
          r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"
            "[^\r\n" r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[" "\r\n" r"]*|\s*[" "\r\n"
            r"]+|\s+(?!\S)|\s+")
BYTES = pre_tokenizers.ByteLevel.alphabet()
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def train(pre_tokenizer, normalizer=None, special=(), size=380, alphabet=(), **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    decorations = {key: model[key] for key in ("continuing_subword_prefix", "end_of_word_suffix")
                   if key in model}
    tokenizer.train_from_iterator(SENTENCES, trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), initial_alphabet=sorted(alphabet),
        show_progress=False, **decorations))
    return tokenizer


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(pattern, normalizer=None, **model):
    pre = pre_tokenizers.Sequence([split(pattern), pre_tokenizers.ByteLevel(False, True, False)])
    tokenizer = train(pre, normalizer, alphabet=BYTES, **model)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def data_of(tokenizer, legacy_merges=False, **model):
    data = json.loads(tokenizer.to_str())
    data["model"].update(model)
    data["added_tokens"] = [token for token in data["added_tokens"]
                            if token["content"] not in BYTE_TOKENS]  # the model's alone
    if legacy_merges:
        data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    return data


def begin_of_text(token, token_id):
    return processors.TemplateProcessing(single=f"{token} $A", pair=f"{token} $A {token} $B",
                                         special_tokens=[(token, token_id)])


def llama3():
    tokenizer = byte_level(LLAMA3)
    tokenizer.add_special_tokens(["<|begin|>", "<|end|>"])
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False),
         begin_of_text("<|begin|>", tokenizer.token_to_id("<|begin|>"))])
    return data_of(tokenizer, legacy_merges=True, ignore_merges=True)


def qwen():
    tokenizer = byte_level(QWEN, normalizers.NFC())
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>",
                                                                              normalized=False)])
    return data_of(tokenizer)


def qwen35():
    return data_of(byte_level(QWEN35, normalizers.NFC()))


def o200k():
    tokenizer = byte_level(O200K)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=False)
    return data_of(tokenizer, ignore_merges=True)


def deepseek():
    pre = pre_tokenizers.Sequence([split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"),
                                   split(DEEPSEEK), pre_tokenizers.ByteLevel(False, True, False)])
    tokenizer = train(pre, normalizers.Sequence([]), alphabet=BYTES)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(["<｜begin▁of▁sentence｜>"])
    tokenizer.add_tokens(["<｜User｜>", "<｜tool▁call｜>"])
    return data_of(tokenizer)


def gpt2():
    tokenizer = train(pre_tokenizers.ByteLevel(True, True, True), alphabet=BYTES,
                      special=["<s>", "</s>"])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return data_of(tokenizer)


def starcoder():
    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)])
    tokenizer = train(pre, alphabet=BYTES, special=["<|endoftext|>"])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel()
    return data_of(tokenizer)


def llama2():
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer = train(None, normalizer, ["<unk>", "<s>", "</s>", *BYTE_TOKENS], size=600,
                      unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer.add_tokens([AddedToken("<|user|>", rstrip=True, normalized=False),
                          AddedToken("[INST]", normalized=True)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = begin_of_text("<s>", 1)
    data = data_of(tokenizer)
    del data["model"]["ignore_merges"]
    return data


def gemma():
    tokenizer = train(pre_tokenizers.Split(" ", "merged_with_previous"),
                      normalizers.Replace(" ", "▁"),
                      ["<pad>", "<eos>", "<bos>", "<unk>", *BYTE_TOKENS], size=600,
                      unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer.add_tokens([AddedToken(run, normalized=False)
                          for run in ("\n\n", "\n\n\n", "\t\t", "▁▁", "▁▁▁", "<table>")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                           decoders.Fuse()])
    tokenizer.post_processor = begin_of_text("<bos>", 2)
    return data_of(tokenizer)


def partial_fallback():
    """Some byte tokens are missing, so that unknown characters fall back or do not."""
    tokenizer = train(pre_tokenizers.Metaspace("▁", "first", False), None,
                      ["<unk>", *BYTE_TOKENS[0x80:0xE5]], size=300, unk_token="<unk>",
                      fuse_unk=True, byte_fallback=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.add_special_tokens(["<s>"])
    return data_of(tokenizer)


def metaspace():
    tokenizer = train(pre_tokenizers.Metaspace("▁", "always", True), normalizers.NFKC(),
                      ["<unk>"], size=180, unk_token="<unk>", fuse_unk=False)
    tokenizer.decoder = decoders.Metaspace()
    return data_of(tokenizer)


def metaspace_never():
    tokenizer = train(pre_tokenizers.Metaspace("_", "never", True),
                      normalizers.Sequence([normalizers.NFKD(), normalizers.Strip()]), size=180)
    tokenizer.decoder = decoders.Sequence([decoders.Metaspace("_", "never"), decoders.Fuse()])
    return data_of(tokenizer)


def clip():
    normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
                                       normalizers.Lowercase()])
    words = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    pre = pre_tokenizers.Sequence([split(words, "removed", True), pre_tokenizers.ByteLevel(False)])
    tokenizer = train(pre, normalizer, ["<|start|>", "<|end|>"], size=700, alphabet=BYTES,
                      unk_token="<|end|>", end_of_word_suffix="</w>")
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    tokenizer.post_processor = processors.RobertaProcessing(("<|end|>", 1), ("<|start|>", 0),
                                                            trim_offsets=True,
                                                            add_prefix_space=False)
    return data_of(tokenizer)


def subword_prefix():
    normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(),
                                       normalizers.Lowercase()])
    tokenizer = train(pre_tokenizers.Whitespace(), normalizer, ["[UNK]", "[CLS]", "[SEP]"],
                      size=300, unk_token="[UNK]", continuing_subword_prefix="##")
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return data_of(tokenizer)


def byte_normalizer():
    tokenizer = train(split(r"Ġ+|[^Ġ]+", "merged_with_next"),
                      normalizers.Sequence([normalizers.Strip(True, False),
                                            normalizers.ByteLevel()]), alphabet=BYTES)
    tokenizer.add_tokens([AddedToken("<a b>", normalized=True), "é"])
    tokenizer.decoder = decoders.ByteLevel()
    return data_of(tokenizer)


def added_tokens():
    tokenizer = byte_level(LLAMA3, normalizers.Lowercase())
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=True)
    tokenizer.add_special_tokens([
        AddedToken("<L>", lstrip=True, normalized=False),
        AddedToken("<R>", rstrip=True, normalized=False),
        AddedToken("<LR>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("<N>", normalized=True)])
    tokenizer.add_tokens([
        AddedToken("word", single_word=True, normalized=False),
        AddedToken("Fold", single_word=True, normalized=True),
        AddedToken("ÉTÉ", normalized=True, lstrip=True),
        AddedToken("<L><R>", normalized=False), AddedToken("<", normalized=False),
        AddedToken("  ", normalized=False), AddedToken("the quick", normalized=True)])
    return data_of(tokenizer)


def behaviors():
    """Every behaviour of Split, plain and inverted, with String and Regex."""
    pre = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), split(r"\p{Lu}", "merged_with_next"),
        pre_tokenizers.Split("o", "merged_with_previous"), split("[xyz]+", "contiguous", True),
        split(r"(?<=a)b|\d", "isolated"), pre_tokenizers.Split("-", "removed"),
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(False)])
    return data_of(train(pre, normalizers.NFD(), ["<unk>"], size=250, unk_token="<unk>"))


def punctuation():
    pre = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("merged_with_previous"), split(r"\s", "merged_with_next", True),
        pre_tokenizers.Punctuation("removed"), split("e*", "merged_with_previous")])
    return data_of(train(pre, size=200))


def gaps():
    """A byte-level vocabulary without some bytes: those are dropped."""
    pre = pre_tokenizers.Sequence([split(QWEN), pre_tokenizers.ByteLevel(False, True, False)])
    tokenizer = train(pre, size=200, alphabet=BYTES[:60])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return data_of(tokenizer)


def no_pre_tokenizer():
    return data_of(train(None, size=150))


def all_tokenizers():
    for make in (llama3, qwen, qwen35, o200k, deepseek, gpt2, starcoder, llama2, gemma,
                 partial_fallback, metaspace, metaspace_never, clip, subword_prefix,
                 byte_normalizer, added_tokens, behaviors, punctuation, gaps, no_pre_tokenizer):
        yield make.__name__, make()
