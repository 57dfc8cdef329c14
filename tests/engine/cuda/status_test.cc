// What CUDA's errors become, without a device.
#include "engine/cuda/status.h"

#include "engine/base/status.h"
#include "engine/cuda/pinned_memory.h"
#include "engine/exec/gpu_checks.h"
#include "engine/exec/gpu_devices.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace penstock::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(CudaStatusTest, Bc60ErrorsThatEndTheContextSayWhoseFaultTheyMayBe) {
  for (cudaError_t error : {cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable,
                            cudaErrorHardwareStackError, cudaErrorContained, cudaErrorUnknown}) {
    const absl::Status status = CudaStatus(error, "fetch of weights");
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ReasonOf(status), reason::kDeviceFailed);
    EXPECT_EQ(MetadataOf(status)["fault"], "hardware");
    EXPECT_EQ(MetadataOf(status)["cuda_error"], cudaGetErrorName(error));
    EXPECT_THAT(Message(status), AllOf(HasSubstr("fetch of weights"),
                                       HasSubstr(cudaGetErrorName(error)), HasSubstr("dmesg")));
  }
  for (cudaError_t error : {cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorLaunchTimeout,
                            cudaErrorMisalignedAddress}) {
    const absl::Status status = CudaStatus(error, "forward");
    EXPECT_EQ(ReasonOf(status), reason::kDeviceFailed);
    EXPECT_EQ(MetadataOf(status)["fault"], "program");
    EXPECT_THAT(Message(status), HasSubstr("report it"));
  }
}

TEST(CudaStatusTest, OtherErrorsAreNoDeviceFailure) {
  EXPECT_TRUE(CudaStatus(cudaSuccess, "x").ok());
  EXPECT_EQ(ReasonOf(CudaStatus(cudaErrorMemoryAllocation, "x")),
            reason::kDeviceMemoryInsufficient);
  EXPECT_EQ(ReasonOf(CudaStatus(cudaErrorNoDevice, "x")), reason::kDeviceUnavailable);
  EXPECT_EQ(ReasonOf(CudaStatus(cudaErrorInvalidValue, "x")), reason::kInternal);
}

TEST(RegistrationStatusTest, Bc55ARefusalNamesTheBytesAndTheLimitsThatMayBeAtFault) {
  constexpr int64_t kBytes = int64_t{3} << 30;
  for (cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorNotSupported, cudaErrorNotPermitted,
                            cudaErrorOperatingSystem}) {
    const cudaError_t before = cudaPeekAtLastError();  // without a driver it is never success
    const absl::Status status = RegistrationStatus(error, kBytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ReasonOf(status), reason::kHostMemoryInsufficient) << "and not the device's";
    EXPECT_EQ(MetadataOf(status)["needed_bytes"], std::to_string(kBytes));
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr("3.0 GiB"), HasSubstr("ulimit -l"), HasSubstr("memlock"),
                      HasSubstr("container"), HasSubstr(cudaGetErrorName(error))));
    EXPECT_EQ(cudaPeekAtLastError(), before) << "nothing is left for the next launch";
  }
  EXPECT_TRUE(RegistrationStatus(cudaSuccess, kBytes).ok());
  EXPECT_EQ(ReasonOf(RegistrationStatus(cudaErrorECCUncorrectable, kBytes)), reason::kDeviceFailed);
}

TEST(GpuChecksTest, DriversAndCardsThatWillNotDoAreNamed) {
  EXPECT_TRUE(CheckDriverVersion(13000, 13000).ok());
  EXPECT_TRUE(CheckDriverVersion(13000, 13010).ok()) << "minor versions are compatible";
  EXPECT_TRUE(CheckDriverVersion(14000, 13000).ok());
  const absl::Status old = CheckDriverVersion(12020, 13000);
  EXPECT_EQ(ReasonOf(old), reason::kDeviceUnavailable);
  EXPECT_THAT(Message(old), AllOf(HasSubstr("12.2"), HasSubstr("13.0"), HasSubstr("update")));
  EXPECT_THAT(Message(CheckDriverVersion(0, 13000)), HasSubstr("no CUDA driver"));
  EXPECT_TRUE(CheckComputeCapability("A100", 8, 0).ok());
  const absl::Status card = CheckComputeCapability("Tesla T4", 7, 5);
  EXPECT_EQ(ReasonOf(card), reason::kDeviceUnavailable);
  EXPECT_THAT(Message(card), AllOf(HasSubstr("Tesla T4"), HasSubstr("7.5"), HasSubstr("8.0")));
}

TEST(OpenGpuTest, WithoutADeviceItSaysSo) {
  if (!ListGpuDevices().empty()) GTEST_SKIP() << "there is a GPU";
  const absl::Status status = OpenGpu("GPU-none").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(status), reason::kDeviceUnavailable);
}

}  // namespace
}  // namespace penstock::cuda
