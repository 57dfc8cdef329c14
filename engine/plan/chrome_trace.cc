#include "engine/plan/chrome_trace.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace penstock {
namespace {

// Of "%7 compute forward_block block=3 mb=1 weights=slot0 ...": "forward_block block=3 mb=1".
std::string ShortName(const std::string& op_text) {
  const std::vector<std::string> words = absl::StrSplit(op_text, ' ');
  std::string name = words.at(2);
  for (size_t i = 3; i < words.size(); ++i) {
    const bool tells = absl::StartsWith(words[i], "block=") || absl::StartsWith(words[i], "mb=");
    if (tells) absl::StrAppend(&name, " ", words[i]);
  }
  return name;
}

}  // namespace

std::string ChromeTrace(const StepProgram& program, std::span<const SimulatedOp> timeline,
                        const std::string& title) {
  constexpr double kMicroseconds = 1e6;
  std::string json = absl::StrCat(
      "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
      "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"",
      title, "\"}}");
  for (int lane = 0; lane < kLaneCount; ++lane) {
    absl::StrAppend(&json, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":", lane,
                    ",\"args\":{\"name\":\"", LaneName(static_cast<Lane>(lane)), "\"}}");
  }
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const std::string text = OpText(program, OpId{static_cast<int32_t>(i)});
    absl::StrAppendFormat(
        &json,
        ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
        "\"args\":{\"op\":\"%s\"}}",
        ShortName(text), static_cast<int>(program.ops[i].lane), timeline[i].start * kMicroseconds,
        (timeline[i].end - timeline[i].start) * kMicroseconds, text);
  }
  absl::StrAppend(&json, "\n]}\n");
  return json;
}

}  // namespace penstock
