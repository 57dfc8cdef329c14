// The model's tokenizer from outside, for comparison with other libraries and for its speed.
//
//   penstock_tokenizer_bench pipe DIRECTORY [OPTION...]     stdin to stdout, below
//   penstock_tokenizer_bench speed DIRECTORY FILE           bytes per second of processor time
//
// pipe reads texts and writes one answer each. Numbers are 32-bit, little-endian.
//   text    bytes, then as many bytes
//   answer  count, then for each token id, begin and end in bytes; then the number of bytes of the
//           decoded text and these. Count is -1, and nothing follows, if the text was refused.
// Options: "add-special" applies the post-processor's tokens, "plain-special" keeps special
// tokens from matching, "ids-only" calls EncodeIds() (begin and end are 0).
// tests/reference/tokenizer_conformance.py drives it.
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/model_tokenizer.h"

namespace penstock {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

absl::StatusOr<std::unique_ptr<ModelTokenizer>> Load(const std::string& directory) {
  TokenizerFiles files = {.directory = directory};
  files.tokenizer_json = ReadFile(directory + "/tokenizer.json");
  files.sentencepiece_model = ReadFile(directory + "/tokenizer.model");
  files.tokenizer_config = ReadFile(directory + "/tokenizer_config.json");
  files.special_tokens_map = ReadFile(directory + "/special_tokens_map.json");
  files.added_tokens = ReadFile(directory + "/added_tokens.json");
  return ModelTokenizer::Create(files);
}

bool ReadNumber(uint32_t& number) { return std::fread(&number, sizeof(number), 1, stdin) == 1; }

void Write(const void* data, size_t bytes) { std::fwrite(data, 1, bytes, stdout); }

void WriteNumber(int64_t number) {
  const auto value = static_cast<int32_t>(number);
  Write(&value, sizeof(value));
}

int Pipe(const ModelTokenizer& tokenizer, const EncodeOptions& options, bool ids_only) {
  std::string text;
  Encoding encoding;
  for (uint32_t bytes = 0; ReadNumber(bytes);) {
    text.resize(bytes);
    if (bytes > 0 && std::fread(text.data(), 1, bytes, stdin) != bytes) return 1;
    absl::Status status;
    if (ids_only) {
      encoding.ids.clear();
      status = tokenizer.EncodeIds(text, options, encoding.ids);
      encoding.spans.assign(encoding.ids.size(), TextSpan{});
    } else {
      status = tokenizer.EncodeWithSpans(text, options, encoding);
    }
    if (!status.ok()) {
      WriteNumber(-1);
    } else {
      WriteNumber(static_cast<int64_t>(encoding.ids.size()));
      for (size_t i = 0; i < encoding.ids.size(); ++i) {
        WriteNumber(encoding.ids[i]);
        WriteNumber(encoding.spans[i].begin);
        WriteNumber(encoding.spans[i].end);
      }
      const std::string decoded = tokenizer.Decode(encoding.ids, ModelTokenizer::SpecialIds::kKeep);
      WriteNumber(static_cast<int64_t>(decoded.size()));
      Write(decoded.data(), decoded.size());
    }
    std::fflush(stdout);
  }
  return 0;
}

int Speed(const ModelTokenizer& tokenizer, const std::string& path) {
  const std::string text = ReadFile(path);
  const auto measure = [&](const char* what, auto encode) {
    double best = 0;
    size_t tokens = 0;
    for (int run = 0; run < 3; ++run) {
      const std::clock_t start = std::clock();
      tokens = encode();
      const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      best = std::max(best, static_cast<double>(text.size()) / seconds / 1e6);
    }
    std::printf("%s: %zu bytes, %zu tokens, %.1f MB/s\n", what, text.size(), tokens, best);
  };
  measure("ids", [&] {
    std::vector<int32_t> ids;
    return tokenizer.EncodeIds(text, {}, ids).ok() ? ids.size() : 0;
  });
  measure("ids and spans", [&] {
    Encoding encoding;
    return tokenizer.EncodeWithSpans(text, {}, encoding).ok() ? encoding.ids.size() : 0;
  });
  return 0;
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() < 2) {
    std::cerr << "usage: penstock_tokenizer_bench pipe|speed DIRECTORY [OPTION...|FILE]\n";
    return 2;
  }
  const auto tokenizer = Load(arguments[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().message() << "\n";
    return 1;
  }
  if (arguments[0] == "speed" && arguments.size() == 3) return Speed(**tokenizer, arguments[2]);
  EncodeOptions options;
  bool ids_only = false;
  for (size_t i = 2; i < arguments.size(); ++i) {
    if (arguments[i] == "add-special") options.post_process = PostProcess::kAddTokens;
    if (arguments[i] == "plain-special") options.special_text = SpecialText::kPlainText;
    if (arguments[i] == "ids-only") ids_only = true;
  }
  return Pipe(**tokenizer, options, ids_only);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::Main({argv + 1, argv + argc}); }
