#include "server/spec/job_spec.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "google/protobuf/unknown_field_set.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "proto/message_file.h"
#include "proto/message_print.h"
#include "server/status_proto.h"

namespace penstock::server {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobSpecTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/penstock-spec-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = std::filesystem::canonical(pattern).string();
    std::filesystem::create_directory(root_ + "/model");
    std::ofstream(root_ + "/text.txt") << "text";
    std::ofstream(root_ + "/config.json") << "{\"model_type\": \"llama\"}";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  v1::JobSpec Minimal() const {
    v1::JobSpec spec;
    spec.mutable_model()->set_directory(root_ + "/model");
    spec.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
    spec.mutable_data()->add_paths(root_ + "/text.txt");
    spec.mutable_batch()->set_sequence_length(128);
    spec.mutable_batch()->set_tokens_per_step(1024);
    spec.mutable_optimizer()->set_learning_rate(1e-4);
    spec.mutable_schedule()->set_max_steps(100);
    return spec;
  }

  absl::StatusOr<ResolvedSpec> Resolve(const v1::JobSpec& spec) const {
    return ResolveJobSpec(spec, {root_}, offer_);
  }
  // Offers a GPU of 80 GiB in this state.
  void AddGpu(const std::string& id, v1::DeviceHealth health = v1::DEVICE_HEALTH_HEALTHY,
              const std::string& message = "") {
    v1::Device gpu;
    gpu.set_id(id);
    gpu.set_kind(v1::DEVICE_KIND_CUDA);
    gpu.set_memory_bytes(kCardBytes);
    gpu.set_description(kCardName);
    gpu.set_health(health);
    gpu.set_health_message(message);
    offer_.devices.push_back(gpu);
    offer_.missing_gpus.clear();
  }

  static constexpr int64_t kCardBytes = int64_t{80} << 30;
  static constexpr const char* kCardName = "NVIDIA H100 80GB HBM3";
  DeviceOffer offer_{.devices = {}, .missing_gpus = "this machine has no NVIDIA driver"};

  std::string root_;
};

TEST_F(JobSpecTest, FillsEveryDefault) {
  const auto resolved = Resolve(Minimal());
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  const v1::JobSpec& spec = resolved->spec;
  EXPECT_EQ(spec.data().text_documents(), v1::TEXT_DOCUMENTS_WHOLE_FILE);
  EXPECT_EQ(spec.data().tokenizer().kind(), v1::TOKENIZER_KIND_MODEL);
  EXPECT_EQ(spec.type(), v1::JOB_TYPE_PRETRAIN);
  EXPECT_EQ(spec.data().packing(), v1::PACKING_PACKED);
  EXPECT_EQ(spec.data().on_bad_row(), v1::BAD_ROW_POLICY_REFUSE);
  EXPECT_EQ(spec.batch().micro_batch_tokens(), 0) << "the planner's choice";
  EXPECT_EQ(spec.batch().activation_checkpointing(), v1::ACTIVATION_CHECKPOINTING_SAVE_ALL);
  EXPECT_EQ(spec.optimizer().kind(), v1::OPTIMIZER_KIND_ADAMW);
  EXPECT_EQ(spec.optimizer().beta1(), 0.9);
  EXPECT_EQ(spec.optimizer().beta2(), 0.999);
  EXPECT_EQ(spec.optimizer().epsilon(), 1e-8);
  EXPECT_EQ(spec.optimizer().max_grad_norm(), 1);
  EXPECT_EQ(spec.optimizer().max_nonfinite_steps(), 10);
  EXPECT_EQ(spec.schedule().kind(), v1::SCHEDULE_KIND_COSINE);
  EXPECT_EQ(spec.precision().compute(), v1::COMPUTE_TYPE_FLOAT32);
  EXPECT_EQ(spec.precision().optimizer_state(), v1::STATE_TYPE_FLOAT32);
  EXPECT_EQ(spec.checkpoints().keep_last(), 2);
  EXPECT_EQ(spec.limits().max_attempts(), 3);
  EXPECT_EQ(spec.limits().grace_seconds(), 1800);
  EXPECT_EQ(spec.queue().priority(), v1::PRIORITY_NORMAL);
  EXPECT_EQ(spec.queue().max_preemptions(), 5);
  EXPECT_THAT(resolved->warnings, IsEmpty());
}

TEST_F(JobSpecTest, ConfigSaysWhatTheSpecSays) {
  v1::JobSpec spec = Minimal();
  spec.mutable_data()->set_packing(v1::PACKING_PADDED);
  spec.mutable_batch()->set_micro_batch_tokens(512);
  spec.mutable_batch()->set_activation_checkpointing(v1::ACTIVATION_CHECKPOINTING_SAVE_INPUT);
  spec.mutable_schedule()->set_kind(v1::SCHEDULE_KIND_WARMUP_STABLE_DECAY);
  spec.mutable_schedule()->set_warmup_steps(7);
  spec.mutable_schedule()->set_decay_steps(30);
  spec.mutable_optimizer()->set_max_grad_norm(0);
  spec.mutable_optimizer()->set_update_with_backward(true);
  spec.mutable_output()->set_directory(root_ + "/out");
  spec.mutable_evaluation()->set_validation_fraction(0.25);
  spec.mutable_checkpoints()->set_every_steps(10);
  spec.mutable_checkpoints()->set_every_seconds(600);
  spec.mutable_checkpoints()->set_keep_every_steps(50);
  spec.mutable_checkpoints()->set_keep_best(true);
  spec.mutable_evaluation()->set_every_steps(20);
  spec.mutable_evaluation()->set_early_stopping_patience(5);
  spec.mutable_limits()->set_host_memory_bytes(int64_t{1} << 30);
  spec.set_seed(42);
  const auto resolved = Resolve(spec);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  const TrainConfig& config = resolved->config;
  EXPECT_EQ(std::get<ModelFromDirectory>(config.model).path, root_ + "/model");
  EXPECT_EQ(config.data.packing, Packing::kPadded);
  EXPECT_EQ(config.batch.micro_batch_tokens, 512);
  EXPECT_EQ(config.batch.save_level, SaveLevel::kInput);
  EXPECT_EQ(config.schedule.shape, ScheduleShape::kWarmupStableDecay);
  EXPECT_EQ(config.schedule.warmup_steps, 7);
  EXPECT_EQ(config.schedule.decay_steps, 30);
  EXPECT_EQ(config.schedule.max_steps, 100);
  EXPECT_EQ(config.schedule.epochs, 0);
  EXPECT_EQ(config.optimizer.max_grad_norm, 0);
  EXPECT_TRUE(config.optimizer.update_with_backward);
  EXPECT_EQ(config.output_directory, root_ + "/out");
  EXPECT_EQ(config.evaluation.validation_fraction, 0.25);
  EXPECT_EQ(config.evaluation.early_stopping_patience, 5);
  EXPECT_EQ(config.checkpoints.every_steps, 10);
  EXPECT_EQ(config.checkpoints.every_seconds, 600);
  EXPECT_EQ(config.checkpoints.keep_every_steps, 50);
  EXPECT_TRUE(config.checkpoints.keep_best);
  EXPECT_EQ(config.checkpoints.keep_last, 2);
  EXPECT_EQ(config.host_memory_bytes, int64_t{1} << 30);
  EXPECT_EQ(config.seed, 42u);
}

TEST_F(JobSpecTest, ResolvingTwiceChangesNothing) {
  v1::JobSpec random = Minimal();
  random.mutable_model()->mutable_random()->set_config_path(root_ + "/config.json");
  random.mutable_output()->set_directory(root_ + "/out");
  v1::JobSpec tokens = Minimal();
  tokens.mutable_data()->set_format(v1::DATA_FORMAT_TOKEN_IDS_JSONL);
  tokens.mutable_data()->set_on_bad_row(v1::BAD_ROW_POLICY_SKIP);
  for (const v1::JobSpec& spec : {Minimal(), random, tokens}) {
    const auto once = Resolve(spec);
    ASSERT_TRUE(once.ok()) << once.status();
    v1::JobSpec printed;
    ASSERT_TRUE(ParseMessageText(MessageToYaml(once->spec), "printed", &printed).ok());
    const auto twice = Resolve(printed);
    ASSERT_TRUE(twice.ok()) << twice.status();
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(once->spec, twice->spec));
  }
}

TEST_F(JobSpecTest, ConfigPathIsReadAtSubmit) {
  v1::JobSpec spec = Minimal();
  spec.mutable_model()->mutable_random()->set_config_path(root_ + "/config.json");
  const auto resolved = Resolve(spec);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(std::get<ModelFromConfig>(resolved->config.model).config_json,
            "{\"model_type\": \"llama\"}");
  spec.mutable_model()->mutable_random()->set_config_path(root_ + "/none.json");
  EXPECT_EQ(MetadataOf(Resolve(spec).status()).at("field"), "model.random.config_path");
}

struct Refusal {
  std::string field;
  std::function<void(v1::JobSpec&)> spoil;
  std::string says;
};

// Each row spoils one thing of a good spec; the error must name that field.
TEST_F(JobSpecTest, RefusesEveryBadFieldByName) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  using S = v1::JobSpec;
  const std::vector<Refusal> table = {
      {"model", [](S& s) { s.clear_model(); }, "no source"},
      {"model.directory", [](S& s) { s.mutable_model()->set_directory(""); }, "nothing"},
      {"model.directory", [](S& s) { s.mutable_model()->set_directory("model"); }, "absolute"},
      {"model.directory", [](S& s) { s.mutable_model()->set_directory("/etc"); }, "/etc"},
      {"model.random", [](S& s) { s.mutable_model()->mutable_random(); }, "config_path"},
      {"model.random.config_json",
       [](S& s) { s.mutable_model()->mutable_random()->set_config_json(""); }, "nothing"},
      {"data.format", [](S& s) { s.mutable_data()->set_format(v1::DataFormat(77)); }, "77"},
      {"data.paths", [](S& s) { s.mutable_data()->clear_paths(); }, "at least one"},
      {"data.paths[1]", [](S& s) { s.mutable_data()->add_paths("b.txt"); }, "absolute"},
      {"data.paths[1]", [](S& s) { s.mutable_data()->add_paths("/etc/passwd"); }, "/etc/passwd"},
      {"data.max_bad_rows", [](S& s) { s.mutable_data()->set_max_bad_rows(5); }, "no effect"},
      {"data.text_documents",
       [](S& s) {
         s.mutable_data()->set_format(v1::DATA_FORMAT_TOKEN_IDS_JSONL);
         s.mutable_data()->set_text_documents(v1::TEXT_DOCUMENTS_BLANK_LINE);
       },
       "no effect"},
      {"batch.sequence_length", [](S& s) { s.mutable_batch()->set_sequence_length(0); }, "found 0"},
      {"batch.sequence_length", [](S& s) { s.mutable_batch()->set_sequence_length(-8); }, "-8"},
      {"batch.sequence_length", [](S& s) { s.mutable_batch()->set_sequence_length(INT64_MAX); },
       "1048576"},
      {"batch.tokens_per_step", [](S& s) { s.mutable_batch()->set_tokens_per_step(1000); },
       "multiple of batch.sequence_length (128)"},
      {"batch.tokens_per_step", [](S& s) { s.mutable_batch()->set_tokens_per_step(INT64_MAX); },
       "1073741824"},
      {"batch.micro_batch_tokens", [](S& s) { s.mutable_batch()->set_micro_batch_tokens(100); },
       "100"},
      {"batch.micro_batch_tokens", [](S& s) { s.mutable_batch()->set_micro_batch_tokens(384); },
       "divides"},
      {"batch.micro_batch_tokens", [](S& s) { s.mutable_batch()->set_micro_batch_tokens(2048); },
       "1024"},
      {"optimizer.learning_rate", [](S& s) { s.mutable_optimizer()->clear_learning_rate(); },
       "nothing"},
      {"optimizer.learning_rate", [](S& s) { s.mutable_optimizer()->set_learning_rate(-1e-5); },
       "-1e-05"},
      {"optimizer.learning_rate", [](S& s) { s.mutable_optimizer()->set_learning_rate(1e5); },
       "from 0 to 1"},
      {"optimizer.learning_rate", [](S& s) { s.mutable_optimizer()->set_learning_rate(kNan); },
       "nan"},
      {"optimizer.learning_rate", [](S& s) { s.mutable_optimizer()->set_learning_rate(kInf); },
       "inf"},
      {"optimizer.beta1", [](S& s) { s.mutable_optimizer()->set_beta1(1); }, "found 1"},
      {"optimizer.beta2", [](S& s) { s.mutable_optimizer()->set_beta2(kNan); }, "nan"},
      {"optimizer.epsilon", [](S& s) { s.mutable_optimizer()->set_epsilon(0); }, "found 0"},
      {"optimizer.weight_decay", [](S& s) { s.mutable_optimizer()->set_weight_decay(-1); }, "-1"},
      {"optimizer.weight_decay",
       [](S& s) {
         s.mutable_optimizer()->set_learning_rate(0.5);
         s.mutable_optimizer()->set_weight_decay(3);
       },
       "1 / learning_rate"},
      {"optimizer.max_grad_norm", [](S& s) { s.mutable_optimizer()->set_max_grad_norm(kInf); },
       "inf"},
      {"optimizer.update_with_backward",
       [](S& s) { s.mutable_optimizer()->set_update_with_backward(true); },
       "true, and max_grad_norm 1"},
      {"optimizer.max_nonfinite_steps",
       [](S& s) { s.mutable_optimizer()->set_max_nonfinite_steps(0); }, "from 1"},
      {"schedule", [](S& s) { s.clear_schedule(); }, "neither max_steps nor epochs"},
      {"schedule", [](S& s) { s.mutable_schedule()->set_epochs(1); }, "both max_steps and epochs"},
      {"schedule.max_steps", [](S& s) { s.mutable_schedule()->set_max_steps(-1); }, "-1"},
      {"schedule.warmup_steps", [](S& s) { s.mutable_schedule()->set_warmup_steps(101); },
       "from 0 to 100"},
      {"schedule.final_fraction", [](S& s) { s.mutable_schedule()->set_final_fraction(1.5); },
       "1.5"},
      {"schedule.final_fraction",
       [](S& s) {
         s.mutable_schedule()->set_kind(v1::SCHEDULE_KIND_CONSTANT);
         s.mutable_schedule()->set_final_fraction(0.5);
       },
       "no effect"},
      {"schedule.warmup_steps",
       [](S& s) { s.mutable_schedule()->set_kind(v1::SCHEDULE_KIND_INVERSE_SQRT); },
       "inverse_sqrt"},
      {"schedule.decay_steps", [](S& s) { s.mutable_schedule()->set_decay_steps(5); }, "no effect"},
      {"schedule.decay_steps",
       [](S& s) {
         s.mutable_schedule()->set_kind(v1::SCHEDULE_KIND_WARMUP_STABLE_DECAY);
         s.mutable_schedule()->set_warmup_steps(90);
         s.mutable_schedule()->set_decay_steps(11);
       },
       "from 0 to 10"},
      {"evaluation.early_stopping_patience",
       [](S& s) {
         s.mutable_evaluation()->set_validation_fraction(0.1);
         s.mutable_evaluation()->set_early_stopping_patience(3);
       },
       "evaluation.every_steps"},
      {"evaluation.early_stopping_patience",
       [](S& s) { s.mutable_evaluation()->set_early_stopping_patience(-1); }, "-1"},
      {"evaluation.validation_fraction",
       [](S& s) { s.mutable_evaluation()->set_validation_fraction(0.6); }, "0.6"},
      {"evaluation.validation_documents",
       [](S& s) { s.mutable_evaluation()->set_validation_documents(-1); }, "-1"},
      {"evaluation",
       [](S& s) {
         s.mutable_evaluation()->set_validation_fraction(0.1);
         s.mutable_evaluation()->set_validation_documents(10);
       },
       "more than one"},
      {"evaluation",
       [this](S& s) {
         s.mutable_evaluation()->set_validation_fraction(0.1);
         s.mutable_evaluation()->add_validation_paths(root_ + "/text.txt");
       },
       "more than one"},
      {"evaluation.validation_paths[0]",
       [](S& s) { s.mutable_evaluation()->add_validation_paths("/etc/passwd"); }, "/etc/passwd"},
      {"evaluation.every_steps", [](S& s) { s.mutable_evaluation()->set_every_steps(-1); }, "-1"},
      {"checkpoints.every_seconds", [](S& s) { s.mutable_checkpoints()->set_every_seconds(-1); },
       "from 0"},
      {"checkpoints.keep_every_steps",
       [](S& s) { s.mutable_checkpoints()->set_keep_every_steps(-1); }, "from 0"},
      {"checkpoints.keep_best",
       [](S& s) {
         s.mutable_evaluation()->set_validation_fraction(0.1);
         s.mutable_checkpoints()->set_keep_best(true);
       },
       "evaluation.every_steps"},
      {"loss_spikes.threshold", [](S& s) { s.mutable_loss_spikes()->set_threshold(2); }, "2"},
      {"loss_spikes.skip_steps", [](S& s) { s.mutable_loss_spikes()->set_skip_steps(5); },
       "ROLL_BACK"},
      {"loss_spikes.max_rollbacks", [](S& s) { s.mutable_loss_spikes()->set_max_rollbacks(0); },
       "from 1"},
      {"checkpoints.keep_last", [](S& s) { s.mutable_checkpoints()->set_keep_last(0); }, "from 1"},
      {"output.directory", [](S& s) { s.mutable_output()->set_directory("/etc/x"); }, "/etc/x"},
      {"output.directory", [this](S& s) { s.mutable_output()->set_directory(root_ + "/model"); },
       "exists"},
      {"output.directory", [this](S& s) { s.mutable_output()->set_directory(root_); }, "exists"},
      {"output.directory", [this](S& s) { s.mutable_output()->set_directory(root_ + "/model/x"); },
       "outside the model's own directory"},
      {"output.directory", [this](S& s) { s.mutable_output()->set_directory(root_ + "/no/x"); },
       "create it first"},
      {"output.export_type",
       [](S& s) { s.mutable_output()->set_export_type(v1::EXPORT_TYPE_BFLOAT16); }, "no effect"},
      {"limits.host_memory_bytes", [](S& s) { s.mutable_limits()->set_host_memory_bytes(-1); },
       "-1"},
      {"limits.compute_threads", [](S& s) { s.mutable_limits()->set_compute_threads(-2); }, "-2"},
      {"limits.max_attempts", [](S& s) { s.mutable_limits()->set_max_attempts(0); }, "from 1"},
      {"limits.run_seconds", [](S& s) { s.mutable_limits()->set_run_seconds(-1); }, "-1"},
      {"limits.grace_seconds", [](S& s) { s.mutable_limits()->set_grace_seconds(0); }, "from 1"},
      {"queue.priority",
       [](S& s) { s.mutable_queue()->set_priority(static_cast<v1::Priority>(9)); }, "9"},
      {"queue.max_preemptions", [](S& s) { s.mutable_queue()->set_max_preemptions(-1); }, "-1"},
      {"queue.after_rule", [](S& s) { s.mutable_queue()->set_after_rule(v1::AFTER_RULE_WAIT); },
       "without queue.after"},
      {"queue.after",
       [](S& s) {
         for (int i = 0; i < 33; ++i) s.mutable_queue()->add_after("jobs/abcd");
       },
       "at most 32"},
      {"display_name", [](S& s) { s.set_display_name(std::string(201, 'x')); }, "201"},
      {"display_name", [](S& s) { s.set_display_name("a\nb"); }, "control character"},
      {"labels", [](S& s) { (*s.mutable_labels())["Big"] = "x"; }, "Big"},
      {"labels.k", [](S& s) { (*s.mutable_labels())["k"] = std::string(64, 'x'); }, "64"},
  };
  for (const Refusal& row : table) {
    v1::JobSpec spec = Minimal();
    row.spoil(spec);
    const absl::Status status = Resolve(spec).status();
    ASSERT_FALSE(status.ok()) << row.field << ": " << row.says;
    EXPECT_EQ(MetadataOf(status)["field"], row.field) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(row.field), HasSubstr(row.says)));
  }
}

TEST_F(JobSpecTest, CodesSayWhatKindOfRefusalItIs) {
  v1::JobSpec spec = Minimal();
  spec.mutable_device()->set_kind(v1::DEVICE_CHOICE_CPU);
  spec.mutable_precision()->set_compute(v1::COMPUTE_TYPE_BFLOAT16);
  EXPECT_EQ(Resolve(spec).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ReasonOf(Resolve(spec).status()), reason::kFeatureUnsupported);
  spec = Minimal();
  spec.mutable_output()->set_directory(root_ + "/model");
  EXPECT_EQ(Resolve(spec).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReasonOf(Resolve(spec).status()), reason::kOutputExists);
  spec = Minimal();
  spec.mutable_model()->set_directory("/etc");
  EXPECT_EQ(Resolve(spec).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ReasonOf(Resolve(spec).status()), reason::kPathNotAllowed);
}

TEST_F(JobSpecTest, AutoTakesAHealthyGpuAndElseTheCpu) {
  auto resolved = Resolve(Minimal());
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->spec.device().kind(), v1::DEVICE_CHOICE_CPU);
  EXPECT_EQ(resolved->config.device.backend, ComputeBackend::kCpu);

  AddGpu("GPU-bad", v1::DEVICE_HEALTH_QUARANTINED, "it fell off the bus");
  resolved = Resolve(Minimal());
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->spec.device().kind(), v1::DEVICE_CHOICE_CPU);
  EXPECT_THAT(resolved->warnings, Contains(HasSubstr("fell off the bus")));

  AddGpu("GPU-good");
  resolved = Resolve(Minimal());
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->spec.device().kind(), v1::DEVICE_CHOICE_CUDA);
  EXPECT_EQ(resolved->spec.precision().compute(), v1::COMPUTE_TYPE_BFLOAT16);
  EXPECT_EQ(resolved->config.device.backend, ComputeBackend::kCuda);
  EXPECT_EQ(resolved->config.device.memory_bytes, kCardBytes - kDeviceReserveBytes);
  EXPECT_EQ(resolved->config.device.card, kCardName);
  EXPECT_THAT(resolved->warnings, IsEmpty());
  // What was resolved resolves to itself.
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(Resolve(resolved->spec)->spec,
                                                                 resolved->spec));

  v1::JobSpec fp32 = Minimal();
  fp32.mutable_precision()->set_compute(v1::COMPUTE_TYPE_FLOAT32);
  EXPECT_EQ(Resolve(fp32)->spec.device().kind(), v1::DEVICE_CHOICE_CPU);
}

TEST_F(JobSpecTest, AJobThatWantsAGpuIsToldWhyThereIsNone) {
  v1::JobSpec spec = Minimal();
  spec.mutable_device()->set_kind(v1::DEVICE_CHOICE_CUDA);
  const auto expect = [&](const char* says) {
    const absl::Status status = Resolve(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ReasonOf(status), reason::kDeviceUnavailable);
    EXPECT_EQ(MetadataOf(status)["field"], "device.kind");
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(says), HasSubstr("kind: cpu")));
  };
  expect("no NVIDIA driver");
  AddGpu("GPU-old", v1::DEVICE_HEALTH_UNUSABLE, "compute capability 7.5 has no bf16");
  AddGpu("GPU-drv", v1::DEVICE_HEALTH_UNUSABLE, "driver 535 runs CUDA up to 12.2");
  expect("compute capability 7.5 has no bf16");
  expect("driver 535 runs CUDA up to 12.2");
  spec.mutable_device()->set_uuid("GPU-old");
  expect("7.5");
  AddGpu("GPU-out", v1::DEVICE_HEALTH_QUARANTINED, "failed");
  spec.mutable_device()->clear_uuid();
  EXPECT_TRUE(Resolve(spec).ok()) << "it waits for the release of GPU-out";
}

TEST_F(JobSpecTest, DeviceFieldsAreRefusedWhereTheyMeanNothing) {
  AddGpu("GPU-good");
  using S = v1::JobSpec;
  struct Refusal {
    std::string field;
    std::function<void(S&)> spoil;
    std::string says;
  };
  const Refusal table[] = {
      {"device.uuid", [](S& s) { s.mutable_device()->set_uuid("GPU-gone"); }, "GPU-good"},
      {"device.uuid",
       [](S& s) {
         s.mutable_device()->set_kind(v1::DEVICE_CHOICE_CPU);
         s.mutable_device()->set_uuid("GPU-good");
       },
       "no effect"},
      {"device.kind", [](S& s) { s.mutable_device()->set_kind(static_cast<v1::DeviceChoice>(9)); },
       "unknown value 9"},
      {"precision.compute",
       [](S& s) {
         s.mutable_device()->set_kind(v1::DEVICE_CHOICE_CUDA);
         s.mutable_precision()->set_compute(v1::COMPUTE_TYPE_FLOAT32);
       },
       "bfloat16"},
      {"precision.compute",
       [](S& s) {
         s.mutable_device()->set_kind(v1::DEVICE_CHOICE_CPU);
         s.mutable_precision()->set_compute(v1::COMPUTE_TYPE_BFLOAT16);
       },
       "float32"},
      {"precision.optimizer_state",
       [](S& s) { s.mutable_precision()->set_optimizer_state(static_cast<v1::StateType>(9)); },
       "9"},
      {"limits.device_memory_bytes", [](S& s) { s.mutable_limits()->set_device_memory_bytes(-1); },
       "-1"},
      {"limits.page_lock",
       [](S& s) { s.mutable_limits()->set_page_lock(static_cast<v1::PageLock>(9)); }, "9"},
      {"limits.device_memory_bytes",
       [](S& s) {
         s.mutable_device()->set_kind(v1::DEVICE_CHOICE_CPU);
         s.mutable_limits()->set_device_memory_bytes(1);
       },
       "no effect"}};
  for (const Refusal& row : table) {
    v1::JobSpec spec = Minimal();
    row.spoil(spec);
    const absl::Status status = Resolve(spec).status();
    ASSERT_FALSE(status.ok()) << row.field << ": " << row.says;
    EXPECT_EQ(MetadataOf(status)["field"], row.field) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.says));
  }
  v1::JobSpec on_cpu = Minimal();
  on_cpu.mutable_device()->set_kind(v1::DEVICE_CHOICE_CPU);
  on_cpu.mutable_limits()->set_page_lock(v1::PAGE_LOCK_OFF);
  EXPECT_EQ(MetadataOf(Resolve(on_cpu).status())["field"], "limits.page_lock");
  v1::JobSpec capped = Minimal();
  capped.mutable_limits()->set_device_memory_bytes(1 << 20);
  EXPECT_EQ(Resolve(capped)->config.device.memory_bytes, 1 << 20);
  EXPECT_TRUE(Resolve(capped)->config.device.memory_capped);
  EXPECT_THAT(Resolve(capped)->warnings, IsEmpty());
  // A cap above what there is caps nothing.
  v1::JobSpec impossible = Minimal();
  impossible.mutable_limits()->set_device_memory_bytes(int64_t{1} << 50);
  EXPECT_FALSE(Resolve(impossible)->config.device.memory_capped);
  EXPECT_THAT(Resolve(impossible)->warnings,
              Contains(AllOf(HasSubstr("limits.device_memory_bytes is 1125899906842624"),
                             HasSubstr("no effect"))));
  EXPECT_EQ(Resolve(capped)->spec.limits().page_lock(), v1::PAGE_LOCK_REQUIRED);
  capped.mutable_limits()->set_page_lock(v1::PAGE_LOCK_PREFERRED);
  EXPECT_EQ(Resolve(capped)->config.device.page_lock, PageLock::kPreferred);
}

TEST_F(JobSpecTest, PathsMayNotLeaveTheRootsBySymlinksOrDots) {
  std::filesystem::create_symlink("/etc", root_ + "/link");
  for (const std::string& path :
       {root_ + "/link/passwd", root_ + "/../etc/passwd", root_ + "/link", std::string("/")}) {
    v1::JobSpec spec = Minimal();
    spec.mutable_data()->set_paths(0, path);
    EXPECT_EQ(ReasonOf(Resolve(spec).status()), reason::kPathNotAllowed) << path;
    spec = Minimal();
    spec.mutable_output()->set_directory(path + "/new");
    EXPECT_FALSE(Resolve(spec).ok()) << path;
  }
}

TEST_F(JobSpecTest, WarnsOfWhatIsLegalButProbablyNotMeant) {
  const auto warnings_of = [&](const std::function<void(v1::JobSpec&)>& change) {
    v1::JobSpec spec = Minimal();
    change(spec);
    const auto resolved = Resolve(spec);
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    return resolved.ok() ? resolved->warnings : std::vector<std::string>();
  };
  EXPECT_THAT(warnings_of([](auto& s) { s.mutable_optimizer()->set_learning_rate(0); }),
              Contains(HasSubstr("train nothing")));
  EXPECT_THAT(warnings_of([](auto& s) { s.mutable_optimizer()->set_learning_rate(0.2); }),
              Contains(HasSubstr("above 0.1")));
  EXPECT_THAT(warnings_of([](auto& s) {
                s.mutable_optimizer()->set_learning_rate(1e-6);
                s.mutable_optimizer()->set_weight_decay(0.01);
              }),
              Contains(HasSubstr("will not decay")));
  EXPECT_THAT(warnings_of([](auto& s) { s.mutable_evaluation()->set_every_steps(10); }),
              Contains(HasSubstr("nothing will be evaluated")));
  // A final checkpoint always exists, so a long interval loses nothing.
  EXPECT_THAT(warnings_of([](auto& s) { s.mutable_checkpoints()->set_every_steps(1000); }),
              IsEmpty());
}

TEST(StatusProtoTest, CarriesReasonFieldAndRetry) {
  const absl::Status status =
      Error(absl::StatusCode::kResourceExhausted, reason::kQueueFull, "full",
            {{"field", "a.b"}, {"retry_seconds", "1.5"}, {"limit", "10"}});
  const google::rpc::Status proto = ToStatusProto(status);
  ASSERT_EQ(proto.details_size(), 3);
  EXPECT_EQ(proto.code(), 8);
  const absl::Status back = FromStatusProto(proto);
  EXPECT_EQ(back.code(), status.code());
  EXPECT_EQ(back.message(), status.message());
  EXPECT_EQ(ReasonOf(back), reason::kQueueFull);
  EXPECT_EQ(MetadataOf(back), MetadataOf(status));
  EXPECT_TRUE(FromStatusProto(ToStatusProto(absl::OkStatus())).ok());
  EXPECT_EQ(ReasonOf(FromStatusProto(ToStatusProto(absl::InternalError("x")))), reason::kInternal);
}

TEST_F(JobSpecTest, AFieldOfANewerVersionIsRefusedAndNamed) {
  for (const bool nested : {false, true}) {
    v1::JobSpec spec = Minimal();
    google::protobuf::Message* message =
        nested ? static_cast<google::protobuf::Message*>(spec.mutable_optimizer()) : &spec;
    message->GetReflection()->MutableUnknownFields(message)->AddVarint(4711, 1);
    // As it comes over the wire.
    v1::JobSpec received;
    ASSERT_TRUE(received.ParseFromString(spec.SerializeAsString()));
    const auto resolved = Resolve(received);
    ASSERT_FALSE(resolved.ok());
    EXPECT_EQ(ReasonOf(resolved.status()), reason::kSpecInvalid);
    EXPECT_THAT(std::string(resolved.status().message()),
                AllOf(HasSubstr(nested ? "optimizer: " : "spec: "), HasSubstr("4711")));
  }
}

}  // namespace
}  // namespace penstock::server
