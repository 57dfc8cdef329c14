#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "CLI/CLI.hpp"
#include "client/audit_text.h"
#include "client/commands/audit_commands.h"
#include "engine/audit/weights_diff.h"
#include "engine/base/thread_pool.h"

namespace penstock::client {
namespace {

constexpr unsigned kMaxThreads = 8;
constexpr int64_t kMany = std::numeric_limits<int32_t>::max();

struct DiffArgs {
  std::string before;
  std::string after;
  int64_t top = 20;
};

ExitCode Diff(const Context& context, const DiffArgs& args) {
  ThreadPool pool(
      static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, kMaxThreads)));
  const absl::StatusOr<WeightsDiff> diff = DiffWeights(args.before, args.after, pool);
  if (!diff.ok()) return context.Fail(diff.status());
  PrintData(context.format == Format::kTable ? DiffText(*diff, args.top) : DiffJson(*diff));
  return ExitCode::kOk;
}

}  // namespace

void AddDiff(CLI::App& app, Context& context) {
  auto args = std::make_shared<DiffArgs>();
  CLI::App* command = app.add_subcommand(
      "diff", "How far the weights of two checkpoints or exports are apart, tensor by tensor");
  command->add_option("before", args->before, "A directory")->required();
  command->add_option("after", args->after, "Another of the same model")->required();
  command->add_option("--top", args->top, "Tensors in the table, those first that moved most")
      ->check(CLI::Range(int64_t{0}, kMany))
      ->capture_default_str();
  command->callback([&context, args] { context.exit_code = Diff(context, *args); });
}

}  // namespace penstock::client
