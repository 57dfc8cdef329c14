// What a machine can do, as far as the time of a step depends on it, and what is known of machines
// by name. Rates are sustained ones of an op that runs alone; what is left of them beside ops of
// other lanes is in contention.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace penstock {

struct MachineProfile {
  double matmul_flops = 0;                   // of the compute type, fp32 accumulation
  double matmul_bytes = 0;                   // a product's operands and result, each once
  double attention_forward_flops = 0;        // causal, documents of 1,024 tokens
  double attention_backward_flops = 0;       // likewise
  double long_attention_forward_flops = 0;   // documents of 4,096 and more
  double long_attention_backward_flops = 0;  // likewise
  double device_bytes = 0;                   // memory-bound kernels, read and written
  double copy_in_bytes = 0;                  // host to device
  double copy_out_bytes = 0;                 // device to host
  double adamw_parameters = 0;               // the host's optimizer
  double host_bytes = 0;                     // host memory, the optimizer and copies together
  double storage_read_bytes = 0;             // one stream, past the page cache
  double storage_write_bytes = 0;            // likewise
  double op_seconds = 0;                     // what an op costs beside its work
  // Of a copy's rate, while one in the other direction runs; and while the host's optimizer does.
  double copy_in_share_beside_out = 1, copy_out_share_beside_in = 1;
  double copy_in_share_beside_adamw = 1, copy_out_share_beside_adamw = 1;
};  // rates per second

// What AdamW reads and writes of host memory for a parameter: planes, moments, bf16 gradient.
inline constexpr double kAdamwHostBytes = 26;
// What an update's parts take of the time of the whole. Each moves 18 of the bytes, but what is
// read takes the time: all 14 that the whole reads for the weights, which a forward pass waits for,
// and 10 for the moments. In steps of 7B on 16 cores of a Sapphire Rapids weights went at 76 to
// 101% of the moments' rate (bench/results/2026-11-29-few-tokens-and-cap.md).
inline constexpr double kAdamwPartBytesShare = 18 / kAdamwHostBytes;
inline constexpr double kAdamwWeightsShare = 0.8, kAdamwMomentsShare = 0.66;

// What copies of host memory that is not locked reach of the rates above. H100: 3.7 GB/s of 41 in,
// 6.4 of 51 out.
inline constexpr double kPageableCopyInShare = 0.09, kPageableCopyOutShare = 0.12;

enum class ProfileSource : uint8_t {
  kMeasured,    // fitted to timelines of steps on such a machine
  kDatasheet,   // a datasheet's peaks times the shares of its own that the measured machine reaches
  kEstimate,    // a rule of thumb
  kCalibrated,  // measured on this machine by itself
};
const char* ProfileSourceName(ProfileSource source);

// What a machine draws, in watts: for an estimate of a run's energy.
struct PowerDraw {
  double device_busy = 0;  // the card while it computes
  double device_idle = 0;  // while it waits
  double host = 0;         // CPUs, memory and the rest of the machine's share, all the time
};

struct NamedProfile {
  std::string name;  // "h100-80gb-pcie5"
  std::string card;  // part of what the driver calls the card
  ProfileSource source = ProfileSource::kMeasured;
  int64_t device_memory_bytes = 0;  // of the card; 0: it is the host's
  int64_t host_memory_bytes = 0;    // that such a machine has for jobs, where nobody says otherwise
  double datasheet_flops = 0;       // of the card: dense bf16; 0: not known
  MachineProfile rates;
  PowerDraw power;
};

// A profile with what it was measured on: rates hold for the same card, driver, CPU and memory.
struct MeasuredProfile {
  NamedProfile profile;
  std::string identity;
  double measuring_seconds = 0;
};

// All machines with a GPU, the measured one first.
std::span<const NamedProfile> MachineProfiles();

// NotFound / SPEC_INVALID with the names there are.
absl::StatusOr<NamedProfile> FindMachineProfile(std::string_view name);

// Of the machine whose card the driver calls so ("NVIDIA H100 80GB HBM3"). A card that no profile
// knows, or an empty name, gets the measured machine's rates, as an estimate.
NamedProfile ProfileOfCard(std::string_view card);

// The CPU backend with so many threads: fp32.
NamedProfile CpuProfile(int threads);

}  // namespace penstock
