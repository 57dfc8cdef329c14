#include "engine/exec/gpu_devices.h"

namespace penstock {

std::vector<GpuDevice> ListGpuDevices() { return {}; }

std::string CudaToolkitName() { return "none"; }

}  // namespace penstock
