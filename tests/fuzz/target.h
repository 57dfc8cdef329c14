// What a fuzzer of Penstock's readers of foreign bytes is: a program that makes a hostile input
// out of a real one, gives it to a reader and holds what comes back against what must be true of
// any input. tests/fuzz/driver.h runs the cases; crashes, hangs and too much memory are its affair.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/fuzz/random.h"

namespace penstock::fuzz {

// What the reader said to a case. Both must happen in a run, or the damage is too small to matter
// or too great to get anywhere.
enum class Outcome : uint8_t { kAccepted, kRefused };

class Target {
 public:
  virtual ~Target() = default;
  // An error, with the input in its message, if something is not as it must be.
  virtual absl::StatusOr<Outcome> RunCase(Random& random) = 0;
};

// Error of a case: what is wrong, and the input with escapes.
absl::Status Violation(std::string_view what, std::string_view input);

// What must be true of every refusal: it says something.
absl::Status CheckRefusal(const absl::Status& refusal, std::string_view input);

struct TargetFactory {
  std::string_view name;
  // `testdata` is the folder tests/testdata, whose files are the seeds.
  std::unique_ptr<Target> (*make)(const std::string& testdata);
};

// All those of the program: engine_targets.cc, server/server_targets.cc.
const std::vector<TargetFactory>& Targets();

// Made by the file of their name.
std::unique_ptr<Target> MakeTokenizerJsonTarget(const std::string& testdata);
std::unique_ptr<Target> MakeSentencePieceTarget(const std::string& testdata);
std::unique_ptr<Target> MakeTemplateTarget(const std::string& testdata);
std::unique_ptr<Target> MakeJsonLinesTarget(const std::string& testdata);
std::unique_ptr<Target> MakeJsonArrayTarget(const std::string& testdata);
std::unique_ptr<Target> MakeCsvTarget(const std::string& testdata);
std::unique_ptr<Target> MakeDatasetInfoTarget(const std::string& testdata);
std::unique_ptr<Target> MakeProvenanceTarget(const std::string& testdata);
std::unique_ptr<Target> MakeEncoderTarget(const std::string& testdata);

// The content of a file of the seeds. Aborts with its name if it cannot be read.
std::string ReadSeed(const std::string& path);

}  // namespace penstock::fuzz
