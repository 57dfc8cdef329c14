// Damaged job files and config files: what is taken can be printed, and the print is a file that
// says the same.
#include "absl/strings/str_cat.h"
#include "client/job_file.h"
#include "google/protobuf/util/message_differencer.h"
#include "penstock/internal/config.pb.h"
#include "proto/message_file.h"
#include "proto/message_print.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/mutation.h"
#include "tests/fuzz/server/answer_checks.h"
#include "tests/fuzz/server/server_targets.h"

namespace penstock::fuzz {
namespace {

using google::protobuf::util::MessageDifferencer;

constexpr char kJson[] = R"({"displayName": "x", "model": {"random": {"config_json": "{}"}},
 "data": {"format": "alpaca", "paths": ["/a"], "max_bad_rows": 7, "chat": {"builtin": "chatml"}},
 "optimizer": {"learning_rate": "1e-5", "beta1": 0.9}, "labels": {"a": "b"}, "seed": 18446744073709551615})";
constexpr char kConfig[] =
    "state_directory: /var/lib/penstock\nallowed_roots: [/srv/penstock]\nlisten: 127.0.0.1:7070\n"
    "tls:\n  certificate: /c\n  key: /k\n  subjects: [{common_name: a, user: ann, role: user}]\n"
    "quotas:\n  - {user: '*', running_jobs: 1}\n";

class JobFileTarget final : public Target {
 public:
  explicit JobFileTarget(const std::string& testdata) {
    for (const char* name : {"tiny_llama", "instructions", "english_bytes"}) {
      seeds_.push_back(ReadSeed(absl::StrCat(testdata, "/../../examples/", name, "/job.yaml")));
    }
    seeds_.emplace_back(kJson);
    seeds_.emplace_back(kConfig);
  }

  absl::StatusOr<Outcome> RunCase(Random& random) override {
    const std::string text =
        MutateText(random.Pick(seeds_), dictionary_, random.Pick(seeds_), random);
    if (random.OneIn(4)) return ReadWithSettings(text, random);
    if (random.OneIn(4)) {
      internal::DaemonConfig config;
      return Read(text, config);
    }
    v1::JobSpec spec;
    return Read(text, spec);
  }

 private:
  template <typename Message>
  static absl::StatusOr<Outcome> Read(const std::string& text, Message& message) {
    if (const absl::Status read = ParseMessageText(text, "job.yaml", &message); !read.ok()) {
      if (absl::Status status = CheckReason(read, text); !status.ok()) return status;
      return Outcome::kRefused;
    }
    return CheckPrint(message, text);
  }

  template <typename Message>
  static absl::StatusOr<Outcome> CheckPrint(const Message& message, const std::string& text) {
    Message yaml, json;
    const std::string as_yaml = MessageToYaml(message), as_json = MessageToJson(message);
    if (const absl::Status again = ParseMessageText(as_yaml, "print", &yaml); !again.ok()) {
      return Violation(absl::StrCat("the print is refused: ", again.ToString(), as_yaml), text);
    }
    if (const absl::Status again = ParseMessageText(as_json, "print", &json); !again.ok()) {
      return Violation(absl::StrCat("the JSON is refused: ", again.ToString(), as_json), text);
    }
    if (!MessageDifferencer::Equals(message, yaml) || !MessageDifferencer::Equals(message, json)) {
      return Violation(absl::StrCat("the print says something else: ", as_yaml, as_json), text);
    }
    return Outcome::kAccepted;
  }

  // As `penstock submit FILE --set ...` does.
  absl::StatusOr<Outcome> ReadWithSettings(const std::string& text, Random& random) {
    std::vector<std::string> settings;
    for (size_t n = random.Below(3); n > 0; --n) {
      settings.push_back(MutateText(random.Pick(settings_), dictionary_, text, random));
    }
    const std::string input = absl::StrCat(text, "\n--set ", settings.size());
    const absl::StatusOr<v1::JobSpec> spec = client::LoadJobFile(file_.Write(text), settings);
    if (!spec.ok()) {
      if (absl::Status status = CheckReason(spec.status(), input); !status.ok()) return status;
      return Outcome::kRefused;
    }
    for (const std::string& path : spec->data().paths()) {
      if (!path.empty() && path[0] != '/') return Violation("a path that is not absolute", input);
    }
    return CheckPrint(*spec, input);
  }

  std::vector<std::string> seeds_;
  const std::vector<std::string> settings_ = {
      "optimizer.learning_rate=1e-4", "data.paths=[a, ../b]", "labels.a=b", "model.directory=m",
      "model={\"random\": {\"config_json\": \"{}\"}}"};
  const std::vector<std::string> dictionary_ = {": ",
                                                "- ",
                                                "\n  ",
                                                "{",
                                                "}",
                                                "[",
                                                "]",
                                                "'",
                                                "\"",
                                                "|\n",
                                                ">-\n",
                                                "&a",
                                                "*a",
                                                "!!str",
                                                "<<: *a",
                                                "? ",
                                                "%YAML 1.1\n",
                                                "---\n",
                                                "...",
                                                "null",
                                                "~",
                                                "1e999",
                                                "-0",
                                                "0x10",
                                                ".inf",
                                                "nan",
                                                "1_000",
                                                "#",
                                                "\t",
                                                "\r\n",
                                                "\\u0000",
                                                "\xff",
                                                "\ufeff",
                                                "seed: ",
                                                "labels: {",
                                                "=",
                                                ".",
                                                "true",
                                                "cosine",
                                                "{a: {a: {a: {a: ",
                                                "[[[[[[[[[[[[[[[[[[[[[[[["};
  const MemoryFile file_;
};

}  // namespace

std::unique_ptr<Target> MakeJobFileTarget(const std::string& testdata) {
  return std::make_unique<JobFileTarget>(testdata);
}

}  // namespace penstock::fuzz
