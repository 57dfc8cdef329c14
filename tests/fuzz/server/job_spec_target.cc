// Damaged specs through the daemon's checks: what is resolved names no file outside the allowed
// root, has nothing left to default, and is a job file when it is printed.
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/logging.h"
#include "google/protobuf/util/message_differencer.h"
#include "proto/message_file.h"
#include "proto/message_print.h"
#include "server/spec/job_spec.h"
#include "tests/fuzz/server/answer_checks.h"
#include "tests/fuzz/server/message_maker.h"
#include "tests/fuzz/server/server_targets.h"

namespace penstock::fuzz {
namespace {

using google::protobuf::util::MessageDifferencer;

class JobSpecTarget final : public Target {
 public:
  explicit JobSpecTarget(const std::string& testdata)
      : root_(std::filesystem::canonical(testdata + "/../../examples").string()) {
    google::protobuf::SetLogHandler(nullptr);  // as penstockd does
    const std::string tiny = root_ + "/tiny_llama", instructions = root_ + "/instructions";
    v1::JobSpec pretrain;
    pretrain.mutable_model()->mutable_random()->set_config_path(tiny + "/config.json");
    pretrain.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
    pretrain.mutable_data()->add_paths(tiny + "/text.txt");
    pretrain.mutable_batch()->set_sequence_length(64);
    pretrain.mutable_batch()->set_tokens_per_step(512);
    pretrain.mutable_optimizer()->set_learning_rate(3e-3);
    pretrain.mutable_schedule()->set_max_steps(60);
    pretrain.mutable_evaluation()->set_validation_fraction(0.1);
    pretrain.mutable_evaluation()->set_every_steps(20);
    pretrain.mutable_output()->set_directory(root_ + "/out");
    v1::JobSpec tune = pretrain;
    tune.set_type(v1::JOB_TYPE_SFT);
    tune.mutable_model()->mutable_random()->set_config_path(instructions + "/config.json");
    tune.mutable_data()->Clear();
    tune.mutable_data()->mutable_chat()->set_builtin("chatml");
    tune.mutable_data()->mutable_tokenizer()->set_kind(v1::TOKENIZER_KIND_BYTES);
    v1::DatasetSpec& rows = *tune.mutable_data()->add_datasets();
    rows.add_paths(instructions + "/instructions.json");
    rows.set_format(v1::DATA_FORMAT_ALPACA);
    tune.mutable_queue()->add_after("jobs/before");
    seeds_ = {pretrain, tune};
    words_ = {tiny + "/config.json",
              tiny + "/text.txt",
              instructions + "/conversations.jsonl",
              tiny,
              root_ + "/out2",
              "/etc/passwd",
              root_ + "/../CMakeLists.txt",
              "/dev/zero",
              "text.txt",
              "",
              "jobs/before",
              "jobs/x/checkpoints/3",
              "uploads/abcd",
              "chatml",
              "{\"enable_thinking\": true}",
              "{{ messages }}",
              "GPU-1",
              "instruction",
              "a"};
    v1::Device cpu;
    cpu.set_id("cpu");
    cpu.set_kind(v1::DEVICE_KIND_CPU);
    cpu.set_health(v1::DEVICE_HEALTH_HEALTHY);
    v1::Device gpu = cpu;
    gpu.set_id("GPU-1");
    gpu.set_kind(v1::DEVICE_KIND_CUDA);
    gpu.set_memory_bytes(int64_t{80} << 30);
    gpu.set_description("NVIDIA H100 80GB HBM3");
    offers_ = {{.devices = {cpu}, .missing_gpus = "no driver"},
               {.devices = {cpu, gpu}, .missing_gpus = ""}};
  }

  absl::StatusOr<Outcome> RunCase(Random& random) override {
    v1::JobSpec spec = random.Pick(seeds_);
    if (random.OneIn(20)) {
      spec.Clear();
      FillMessage(spec, words_, random);
    }
    ChangeMessage(spec, words_, random);
    // As it would arrive: what does not parse never gets here.
    v1::JobSpec sent;
    if (!sent.ParseFromString(DamagedBytes(spec, random))) return Outcome::kRefused;
    const std::string input = sent.Utf8DebugString();
    const server::DeviceOffer& offer = random.Pick(offers_);
    const auto resolved = server::ResolveJobSpec(sent, {root_}, offer);
    if (!resolved.ok()) {
      if (absl::Status status = CheckReason(resolved.status(), input); !status.ok()) return status;
      return Outcome::kRefused;
    }
    server::ToTrainConfig(resolved->spec);
    if (absl::Status status = CheckPaths(resolved->spec, input); !status.ok()) return status;
    const auto again = server::ResolveJobSpec(resolved->spec, {root_}, offer);
    if (!again.ok()) {
      return Violation(absl::StrCat("its own answer is refused: ", again.status().ToString(),
                                    resolved->spec.Utf8DebugString()),
                       input);
    }
    if (!MessageDifferencer::Equals(again->spec, resolved->spec)) {
      return Violation(
          absl::StrCat("its own answer is resolved to something else: ",
                       resolved->spec.Utf8DebugString(), " is now ", again->spec.Utf8DebugString()),
          input);
    }
    v1::JobSpec printed;
    const absl::Status read = ParseMessageText(MessageToYaml(resolved->spec), "print", &printed);
    if (!read.ok()) return Violation("the print is refused: " + read.ToString(), input);
    if (!MessageDifferencer::Equals(printed, resolved->spec)) {
      return Violation("the print says something else", input);
    }
    return Outcome::kAccepted;
  }

 private:
  absl::Status CheckPath(const std::string& path, const std::string& input) const {
    if (path.empty() || absl::StartsWith(path, root_ + "/") || path == root_) {
      return absl::OkStatus();
    }
    return Violation(absl::StrCat("a path outside the root: ", path), input);
  }

  absl::Status CheckPaths(const v1::JobSpec& spec, const std::string& input) const {
    std::vector<std::string> paths = {spec.model().directory(), spec.model().random().config_path(),
                                      spec.output().directory()};
    const auto add = [&paths](const auto& more) {
      paths.insert(paths.end(), more.begin(), more.end());
    };
    add(spec.data().paths());
    add(spec.evaluation().validation_paths());
    for (const auto* datasets :
         {&spec.data().datasets(), &spec.evaluation().validation_datasets()}) {
      for (const v1::DatasetSpec& dataset : *datasets) add(dataset.paths());
    }
    for (const std::string& path : paths) {
      if (absl::Status status = CheckPath(path, input); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  const std::string root_;
  std::vector<v1::JobSpec> seeds_;
  std::vector<std::string> words_;
  std::vector<server::DeviceOffer> offers_;
};

}  // namespace

std::unique_ptr<Target> MakeJobSpecTarget(const std::string& testdata) {
  return std::make_unique<JobSpecTarget>(testdata);
}

}  // namespace penstock::fuzz
