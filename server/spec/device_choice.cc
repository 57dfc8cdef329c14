#include "server/spec/device_choice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/spec/spec_fields.h"

namespace penstock::server {
namespace {

bool Healthy(const v1::Device& device) { return device.health() == v1::DEVICE_HEALTH_HEALTHY; }
bool IsGpu(const v1::Device& device) { return device.kind() == v1::DEVICE_KIND_CUDA; }

bool IsOneOf(const v1::Device& device, const std::string& uuid) {
  return IsGpu(device) && (uuid.empty() || device.id() == uuid);
}

bool HasHealthyGpu(const DeviceOffer& offer) {
  return std::any_of(offer.devices.begin(), offer.devices.end(),
                     [](const v1::Device& device) { return IsGpu(device) && Healthy(device); });
}

absl::Status ResolveKind(const DeviceOffer& offer, v1::JobSpec& spec) {
  v1::DeviceSpec& device = *spec.mutable_device();
  if (device.kind() == v1::DEVICE_CHOICE_CPU && !device.uuid().empty()) {
    return UnusedFieldError("device.uuid", "on the CPU");
  }
  if (device.kind() == v1::DEVICE_CHOICE_CPU || device.kind() == v1::DEVICE_CHOICE_CUDA) {
    return absl::OkStatus();
  }
  // AUTO. What only a GPU has asks for one.
  const v1::ComputeType compute = spec.precision().compute();
  const bool wants_gpu = !device.uuid().empty() || compute == v1::COMPUTE_TYPE_BFLOAT16 ||
                         (compute == v1::COMPUTE_TYPE_UNSPECIFIED && HasHealthyGpu(offer));
  device.set_kind(wants_gpu ? v1::DEVICE_CHOICE_CUDA : v1::DEVICE_CHOICE_CPU);
  return absl::OkStatus();
}

absl::Status ResolveCompute(v1::JobSpec& spec) {
  const bool cuda = spec.device().kind() == v1::DEVICE_CHOICE_CUDA;
  const v1::ComputeType has = cuda ? v1::COMPUTE_TYPE_BFLOAT16 : v1::COMPUTE_TYPE_FLOAT32;
  v1::PrecisionSpec& precision = *spec.mutable_precision();
  if (precision.compute() == v1::COMPUTE_TYPE_UNSPECIFIED) precision.set_compute(has);
  if (precision.compute() == has) return absl::OkStatus();
  const std::string found = cuda ? "float32" : "bfloat16", expected = cuda ? "bfloat16" : "float32";
  return Error(absl::StatusCode::kUnimplemented, reason::kFeatureUnsupported,
               absl::StrCat("precision.compute: found ", found, ", expected ", expected,
                            ", which is what a ", cuda ? "GPU" : "CPU",
                            " computes in here; remove the key, or use device.kind: ",
                            cuda ? "cpu" : "cuda"),
               {{"field", "precision.compute"}, {"found", found}, {"expected", expected}});
}

// Why no GPU can run the job, device by device.
absl::Status NoGpu(const DeviceOffer& offer, const std::string& uuid) {
  std::string known, unusable;
  for (const v1::Device& device : offer.devices) {
    if (!IsGpu(device)) continue;
    absl::StrAppend(&known, known.empty() ? "" : ", ", device.id());
    if (!IsOneOf(device, uuid)) continue;
    absl::StrAppend(&unusable, unusable.empty() ? "" : "; ", device.id(), " (",
                    device.description(), "): ", device.health_message());
  }
  if (!uuid.empty() && unusable.empty() && !known.empty()) {
    return FieldError("device.uuid", absl::StrCat("\"", uuid, "\""),
                      absl::StrCat("the UUID of a GPU of this daemon: ", known));
  }
  return Error(absl::StatusCode::kUnavailable, reason::kDeviceUnavailable,
               absl::StrCat("device.kind: the job wants a GPU and none can run it: ",
                            unusable.empty() ? offer.missing_gpus : unusable,
                            "; say device.kind: cpu to train on the CPU"),
               {{"field", "device.kind"}});
}

}  // namespace

DeviceOffer OfferOf(const MachineInfo& machine) {
  DeviceOffer offer;
  v1::Device& device = offer.devices.emplace_back();
  device.set_id(machine.name);
  device.set_kind(v1::DEVICE_KIND_CUDA);
  device.set_description(machine.card);
  device.set_memory_bytes(machine.device_memory_bytes);
  device.set_health(v1::DEVICE_HEALTH_HEALTHY);
  return offer;
}

absl::StatusOr<PlannedDevice> ResolveDevice(const DeviceOffer& offer, v1::JobSpec& spec) {
  PENSTOCK_RETURN_IF_ERROR(ResolveKind(offer, spec));
  PENSTOCK_RETURN_IF_ERROR(ResolveCompute(spec));
  const int64_t cap = spec.limits().device_memory_bytes();
  if (spec.device().kind() == v1::DEVICE_CHOICE_CPU) {
    if (cap != 0) return UnusedFieldError("limits.device_memory_bytes", "on the CPU");
    if (spec.limits().page_lock() != v1::PAGE_LOCK_UNSPECIFIED) {
      return UnusedFieldError("limits.page_lock", "on the CPU");
    }
    return PlannedDevice{};
  }
  if (spec.limits().page_lock() == v1::PAGE_LOCK_UNSPECIFIED) {
    spec.mutable_limits()->set_page_lock(v1::PAGE_LOCK_REQUIRED);
  }
  int64_t largest = -1;
  std::string card, id;
  for (const v1::Device& device : offer.devices) {
    if (!IsOneOf(device, spec.device().uuid())) continue;
    if (device.health() == v1::DEVICE_HEALTH_UNUSABLE) continue;
    if (device.memory_bytes() <= largest) continue;
    largest = device.memory_bytes();
    card = device.description();
    id = device.id();
  }
  if (largest < 0) return NoGpu(offer, spec.device().uuid());
  // A card this small is refused by the plan, with its numbers; 0 would mean "no limit".
  const int64_t usable = std::max<int64_t>(1, largest - kDeviceReserveBytes);
  return PlannedDevice{.memory_bytes = cap > 0 ? std::min(cap, usable) : usable,
                       .card = std::move(card),
                       .id = std::move(id)};
}

void AddDeviceWarning(const DeviceOffer& offer, const v1::JobSpec& given,
                      const v1::JobSpec& resolved, std::vector<std::string>& warnings) {
  const bool by_itself = given.device().kind() != v1::DEVICE_CHOICE_CPU &&
                         given.precision().compute() == v1::COMPUTE_TYPE_UNSPECIFIED &&
                         resolved.device().kind() == v1::DEVICE_CHOICE_CPU;
  if (!by_itself) return;
  std::string unusable;
  for (const v1::Device& device : offer.devices) {
    if (!IsGpu(device)) continue;
    absl::StrAppend(&unusable, unusable.empty() ? "" : "; ", device.id(), ": ",
                    device.health_message());
  }
  if (unusable.empty()) return;
  warnings.push_back(absl::StrCat("the job runs on the CPU, as no GPU is in service: ", unusable));
}

}  // namespace penstock::server
