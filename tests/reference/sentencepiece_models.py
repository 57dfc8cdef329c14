"""SentencePiece models that use what Penstock implements, trained on a few words.

Needs PyPI sentencepiece (0.2.1 was used). Used by sentencepiece_goldens.py and
sentencepiece_conformance.py.
"""
import contextlib
import io
import pathlib
import random
import tempfile

import sentencepiece

WORDS = ("the quick brown fox jumps over a lazy dog and then some more words of plain text "
         "don't it's we'll naïve résumé Straße déjà vu 日本語 テスト 中文字符 한국어 हिन्दी "
         "Русский язык Ελληνικά עברית العربية int main return void const string include "
         "1 2 3 12 34 567 1999 2024 3.14 ( ) { } [ ] ; : , . ! ? - + = < > / \\ ' \" @ # $ % & *")

MODELS = {
    # As Llama 2 and Mistral have it.
    "llama": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                  remove_extra_whitespaces=False, split_digits=True,
                  allow_whitespace_only_pieces=True),
    # As Gemma has it: runs of spaces and markers are pieces, nothing is put before the text.
    "gemma": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                  remove_extra_whitespaces=False, add_dummy_prefix=False, split_digits=True,
                  user_defined_symbols=["<|user|>", "<|user", "▁▁", "▁▁▁", "\n\n", "brown", "xy"],
                  control_symbols=["<ctrl>"], pad_id=3),
    "bpe_nfkc": dict(model_type="bpe", normalization_rule_name="nmt_nfkc",
                     user_defined_symbols=["ﬁ", "<sep>"]),
    "bpe_trim": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity"),
    "unigram_nfkc": dict(model_type="unigram", normalization_rule_name="nmt_nfkc"),
    "unigram_bytes": dict(model_type="unigram", byte_fallback=True,
                          normalization_rule_name="identity", remove_extra_whitespaces=False,
                          user_defined_symbols=["<|user|>", "<|user", "▁▁", "fox", "ox"]),
    "unigram_casefold": dict(model_type="unigram", normalization_rule_name="nfkc_cf",
                             add_dummy_prefix=False),
}


# A few rules in place of the library's, whose tables have 240 kB.
FEW_RULES = {"\ufb01": "fi", "\u00bd": "1\u20442", "\u2460": "1", "\u3314": "キロ", "\uff21": "A",
             "\uff11": "1", "\uff12": "2", "\u3000": " ", "\t": " ", "\n": " ", "\r": " ",
             "\u200b": " ", "\u00ad": "", "e\u0301": "é", "a\u0328\u0301": "ą\u0301", "\u00df": "ss",
             "T": "t", "ABC": "abc", "AB": "x", "\x85": ""}


def few_rules_lines():
    def code_points(text):
        return " ".join(f"{ord(c):X}" for c in text)

    return "".join(f"{code_points(a)}\t{code_points(b)}\n" for a, b in FEW_RULES.items())


def train(name, few_rules=False):
    """The content of the .model file."""
    options = dict(MODELS[name])
    rng = random.Random(11)
    words = WORDS.split()
    sentences = [" ".join(rng.choice(words) for _ in range(12)) for _ in range(4000)]
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        if few_rules and options["normalization_rule_name"] != "identity":
            del options["normalization_rule_name"]
            options["normalization_rule_tsv"] = "rules.tsv"  # the name stays in the model
            pathlib.Path("rules.tsv").write_text(few_rules_lines())
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences), model_writer=model, vocab_size=500,
            character_coverage=0.999, hard_vocab_limit=False, minloglevel=2, num_threads=1,
            **options)
    return model.getvalue()
