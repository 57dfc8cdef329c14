#include "engine/tokenizer/decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/components.h"
#include "engine/tokenizer/pattern.h"

namespace penstock {
namespace {

using Tokens = std::vector<std::string>;

constexpr char kReplacementCharacter[] = "\xEF\xBF\xBD";

class ByteLevelStep final : public DecodeStep {
 public:
  Tokens Apply(Tokens tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) bytes += BytesSpelledBy(token).value_or(token);
    return {ReplaceInvalidUtf8(bytes)};
  }
};

class ReplaceStep final : public DecodeStep {
 public:
  ReplaceStep(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Tokens Apply(Tokens tokens) const override {
    for (std::string& token : tokens) {
      std::string replaced;
      size_t copied = 0;
      const absl::Status status = pattern_.ForEachMatch(token, [&](size_t begin, size_t end) {
        replaced.append(token, copied, begin - copied);
        replaced += content_;
        copied = end;
        return absl::OkStatus();
      });
      if (!status.ok()) continue;  // too many steps: the token stays as it is
      replaced.append(token, copied);
      token = std::move(replaced);
    }
    return tokens;
  }

 private:
  Pattern pattern_;
  std::string content_;
};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// The byte that a token <0xNN> stands for.
std::optional<char> FallbackByte(const std::string& token) {
  if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return std::nullopt;
  const int high = HexDigit(token[3]);
  const int low = HexDigit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

// A run of byte tokens becomes the text that they spell, or as many U+FFFD if it is none.
class ByteFallbackStep final : public DecodeStep {
 public:
  Tokens Apply(Tokens tokens) const override {
    Tokens result;
    std::string bytes;
    const auto flush = [&] {
      if (FindInvalidUtf8(bytes) == std::string_view::npos) {
        if (!bytes.empty()) result.push_back(bytes);
      } else {
        result.insert(result.end(), bytes.size(), kReplacementCharacter);
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const std::optional<char> byte = FallbackByte(token)) {
        bytes.push_back(*byte);
        continue;
      }
      flush();
      result.push_back(std::move(token));
    }
    flush();
    return result;
  }
};

class FuseStep final : public DecodeStep {
 public:
  Tokens Apply(Tokens tokens) const override { return {absl::StrJoin(tokens, "")}; }
};

// Takes up to `start` and `stop` characters off the ends of each token, as long as they are
// `content`.
class StripStep final : public DecodeStep {
 public:
  StripStep(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}

  Tokens Apply(Tokens tokens) const override {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (int64_t i = 0; i < start_ && rest.substr(0, content_.size()) == content_; ++i) {
        rest.remove_prefix(content_.size());
      }
      for (int64_t i = 0; i < stop_ && EndsWith(rest); ++i) rest.remove_suffix(content_.size());
      token = std::string(rest);
    }
    return tokens;
  }

 private:
  bool EndsWith(std::string_view text) const {
    return text.size() >= content_.size() && text.substr(text.size() - content_.size()) == content_;
  }

  std::string content_;
  int64_t start_;
  int64_t stop_;
};

class MetaspaceStep final : public DecodeStep {
 public:
  MetaspaceStep(std::string replacement, bool drops_first)
      : replacement_(std::move(replacement)), drops_first_(drops_first) {}

  Tokens Apply(Tokens tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const char* const space = i == 0 && drops_first_ ? "" : " ";
      tokens[i] = absl::StrReplaceAll(tokens[i], {{replacement_, space}});
    }
    return tokens;
  }

 private:
  std::string replacement_;
  bool drops_first_;
};

class SuffixStep final : public DecodeStep {
 public:
  explicit SuffixStep(std::string suffix) : suffix_(std::move(suffix)) {}

  Tokens Apply(Tokens tokens) const override {
    for (size_t i = 0; i < tokens.size() && !suffix_.empty(); ++i) {
      const char* const space = i + 1 == tokens.size() ? "" : " ";
      tokens[i] = absl::StrReplaceAll(tokens[i], {{suffix_, space}});
    }
    return tokens;
  }

 private:
  std::string suffix_;
};

using Made = std::unique_ptr<const DecodeStep>;

absl::StatusOr<Made> MakeStrip(const ConfigFields& fields) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string content, ReadCharacter(fields, "content"));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t start, fields.Integer("start", 0, INT32_MAX));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t stop, fields.Integer("stop", 0, INT32_MAX));
  return std::make_unique<StripStep>(std::move(content), start, stop);
}

absl::StatusOr<Made> MakeMetaspace(const ConfigFields& fields) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string replacement, ReadCharacter(fields, "replacement"));
  PENSTOCK_ASSIGN_OR_RETURN(const bool prefix, fields.Bool("add_prefix_space", true));
  std::string scheme = prefix ? "always" : "never";
  if (fields.Find("prepend_scheme") != nullptr) {
    PENSTOCK_ASSIGN_OR_RETURN(scheme, fields.String("prepend_scheme"));
  }
  return std::make_unique<MetaspaceStep>(std::move(replacement), scheme != "never");
}

absl::StatusOr<Made> Make(const Component& component) {
  const ConfigFields& fields = component.fields;
  const std::string& type = component.type;
  if (type == "ByteLevel") return std::make_unique<ByteLevelStep>();
  if (type == "ByteFallback") return std::make_unique<ByteFallbackStep>();
  if (type == "Fuse") return std::make_unique<FuseStep>();
  if (type == "Strip") return MakeStrip(fields);
  if (type == "Metaspace") return MakeMetaspace(fields);
  if (type == "Replace") {
    PENSTOCK_ASSIGN_OR_RETURN(Pattern pattern, ReadPattern(component));
    PENSTOCK_ASSIGN_OR_RETURN(std::string content, fields.String("content"));
    return std::make_unique<ReplaceStep>(std::move(pattern), std::move(content));
  }
  if (type == "BPEDecoder") {
    PENSTOCK_ASSIGN_OR_RETURN(std::string suffix, fields.String("suffix"));
    return std::make_unique<SuffixStep>(std::move(suffix));
  }
  return UnknownComponent(component,
                          "ByteLevel, ByteFallback, Fuse, Strip, Metaspace, Replace, BPEDecoder "
                          "and Sequence");
}

}  // namespace

absl::StatusOr<Decoder> Decoder::Read(const ConfigFields& file, absl::string_view name) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Component> components,
                            ReadComponents(file, name, "decoders"));
  Decoder decoder;
  decoder.absent_ = file.Find(name) == nullptr;
  for (const Component& component : components) {
    PENSTOCK_ASSIGN_OR_RETURN(Made step, Make(component));
    decoder.steps_.push_back(std::move(step));
  }
  return decoder;
}

std::string Decoder::Decode(std::vector<std::string> tokens) const {
  if (absent_) return absl::StrJoin(tokens, " ");
  for (const auto& step : steps_) tokens = step->Apply(std::move(tokens));
  return absl::StrJoin(tokens, "");
}

}  // namespace penstock
