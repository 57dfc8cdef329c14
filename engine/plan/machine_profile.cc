#include "engine/plan/machine_profile.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

// One H100 80GB SXM with 16 cores of its host, fitted to the timelines in bench/results/. Hosts
// differ: AdamW has been seen between 3.3 and 5.3 G parameters/s beside copies.
constexpr MachineProfile kH100 = {.matmul_flops = 757e12,
                                  .matmul_bytes = 20e12,
                                  .attention_forward_flops = 390e12,
                                  .attention_backward_flops = 250e12,
                                  .long_attention_forward_flops = 580e12,
                                  .long_attention_backward_flops = 310e12,
                                  .device_bytes = 2.6e12,
                                  .copy_in_bytes = 46e9,
                                  .copy_out_bytes = 54e9,
                                  .adamw_parameters = 5e9,
                                  .host_bytes = 150e9,
                                  .storage_read_bytes = 1.5e9,
                                  .storage_write_bytes = 1.1e9,
                                  .op_seconds = 20e-6,
                                  .copy_in_share_beside_out = 0.8,
                                  .copy_out_share_beside_in = 0.95,
                                  .copy_in_share_beside_adamw = 0.85};

// The H100's own datasheet: dense bf16, HBM3, PCIe 5 x16 one way.
constexpr double kH100Flops = 989e12, kH100Memory = 3.35e12, kH100Link = 64e9;

// Of a card's datasheet rate what products come to in a row: the H100's with tiles that are made
// for it are above that, an H200's are not.
constexpr double kSustainedShare = 0.708;

// What host memory gives cores and copies together, of what it gives cores alone.
constexpr double kHostBytesShare = kH100.host_bytes / (kH100.adamw_parameters * kAdamwHostBytes);

// `link`: one way. `host_memory`: sustained by all cores together.
struct Datasheet {
  double flops, memory, link, host_memory;
};

constexpr MachineProfile FromDatasheet(const Datasheet& sheet) {
  const double flops = sheet.flops / kH100Flops, link = sheet.link / kH100Link;
  return {.matmul_flops = kSustainedShare * sheet.flops,
          .matmul_bytes = kH100.matmul_bytes * sheet.memory / kH100Memory,
          .attention_forward_flops = kH100.attention_forward_flops * flops,
          .attention_backward_flops = kH100.attention_backward_flops * flops,
          .long_attention_forward_flops = kH100.long_attention_forward_flops * flops,
          .long_attention_backward_flops = kH100.long_attention_backward_flops * flops,
          .device_bytes = kH100.device_bytes * sheet.memory / kH100Memory,
          .copy_in_bytes = kH100.copy_in_bytes * link,
          .copy_out_bytes = kH100.copy_out_bytes * link,
          .adamw_parameters = sheet.host_memory / kAdamwHostBytes,
          .host_bytes = sheet.host_memory * kHostBytesShare,
          .storage_read_bytes = 6e9,
          .storage_write_bytes = 4e9,
          .op_seconds = kH100.op_seconds,
          .copy_in_share_beside_out = kH100.copy_in_share_beside_out,
          .copy_out_share_beside_in = kH100.copy_out_share_beside_in,
          .copy_in_share_beside_adamw = kH100.copy_in_share_beside_adamw,
          .copy_out_share_beside_adamw = kH100.copy_out_share_beside_adamw};
}

// Power: the card's limit while it computes, an idle card's draw, and for the host an estimate.
// Storage: one NVMe drive. Host memory: what the measured host gives where the card says nothing of
// the host, LPDDR5X at 80% of its 512 GB/s beside Grace, two channels of DDR5 under a card for
// desktops.
NamedProfile OfDatasheet(const char* name, const char* card, int64_t gib, int64_t host_gib,
                         const Datasheet& sheet, const PowerDraw& power) {
  return {.name = name,
          .card = card,
          .source = ProfileSource::kDatasheet,
          .device_memory_bytes = gib * kGib,
          .host_memory_bytes = host_gib * kGib,
          .datasheet_flops = sheet.flops,
          .rates = FromDatasheet(sheet),
          .power = power};
}

const std::vector<NamedProfile>& Profiles() {
  static const auto& profiles = *new std::vector<NamedProfile>{
      NamedProfile{.name = "h100-80gb-pcie5",
                   .card = "H100 80GB",
                   .source = ProfileSource::kMeasured,
                   .device_memory_bytes = 80 * kGib,
                   .host_memory_bytes = 128 * kGib,
                   .datasheet_flops = kH100Flops,
                   .rates = kH100,
                   .power = {700, 75, 250}},
      OfDatasheet("h200-141gb-pcie5", "H200", 140, 256, {989e12, 4.8e12, 64e9, 138e9},
                  {700, 75, 300}),
      OfDatasheet("h200-1.5tb", "H200", 140, 1500, {989e12, 4.8e12, 64e9, 138e9}, {700, 75, 400}),
      OfDatasheet("gh200-96gb", "GH200", 95, 480, {989e12, 4.0e12, 450e9, 410e9}, {700, 75, 300}),
      OfDatasheet("a100-80gb-pcie4", "A100", 80, 256, {312e12, 1.94e12, 32e9, 138e9},
                  {300, 50, 250}),
      OfDatasheet("rtx4090-24gb-pcie4", "RTX 4090", 24, 128, {165e12, 1.01e12, 32e9, 70e9},
                  {450, 25, 150}),
      OfDatasheet("rtx5090-32gb-pcie5", "RTX 5090", 32, 128, {210e12, 1.79e12, 64e9, 75e9},
                  {575, 30, 150}),
  };
  return profiles;
}

}  // namespace

const char* ProfileSourceName(ProfileSource source) {
  switch (source) {
    case ProfileSource::kMeasured:
      return "measured";
    case ProfileSource::kDatasheet:
      return "from datasheets";
    case ProfileSource::kEstimate:
      return "estimate";
    case ProfileSource::kCalibrated:
      return "measured here";
  }
  return "?";
}

std::span<const NamedProfile> MachineProfiles() { return Profiles(); }

absl::StatusOr<NamedProfile> FindMachineProfile(std::string_view name) {
  std::string names;
  for (const NamedProfile& profile : Profiles()) {
    if (profile.name == name) return profile;
    absl::StrAppend(&names, names.empty() ? "" : ", ", profile.name);
  }
  return Error(absl::StatusCode::kNotFound, reason::kSpecInvalid,
               absl::StrCat("no machine profile '", std::string(name), "'; there are ", names));
}

NamedProfile ProfileOfCard(std::string_view card) {
  // "GH200" holds "H200": the longest match is the card's.
  const NamedProfile* found = nullptr;
  for (const NamedProfile& profile : Profiles()) {
    if (card.find(profile.card) == std::string_view::npos) continue;
    if (found == nullptr || profile.card.size() > found->card.size()) found = &profile;
  }
  if (found != nullptr) return *found;
  NamedProfile unknown = Profiles().front();
  unknown.source = ProfileSource::kEstimate;
  unknown.datasheet_flops = 0;
  return unknown;
}

// By thread: one core's AVX2 or better under OpenBLAS, and its share of two memory channels.
NamedProfile CpuProfile(int threads) {
  const double count = std::max(1, threads);
  return {.name = "cpu",
          .card = {},
          .source = ProfileSource::kEstimate,
          .device_memory_bytes = 0,
          .host_memory_bytes = 0,
          .datasheet_flops = 0,
          .rates = {.matmul_flops = 40e9 * count,
                    .matmul_bytes = 40e9 * count,
                    .attention_forward_flops = 4e9 * count,
                    .attention_backward_flops = 4e9 * count,
                    .long_attention_forward_flops = 4e9 * count,
                    .long_attention_backward_flops = 4e9 * count,
                    .device_bytes = 4e9 * count,
                    .copy_in_bytes = 4e9 * count,
                    .copy_out_bytes = 4e9 * count,
                    .adamw_parameters = 0.2e9 * count,
                    .host_bytes = (0.2e9 * kAdamwHostBytes + 8e9) * count,
                    .storage_read_bytes = 1e9,
                    .storage_write_bytes = 0.5e9,
                    .op_seconds = 20e-6},
          .power = {.host = 40 + 8 * count}};
}

}  // namespace penstock
