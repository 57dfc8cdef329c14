// Devices and how they are, as text for people.
#pragma once

#include <string>

#include "google/protobuf/repeated_ptr_field.h"
#include "penstock/v1/device.pb.h"

namespace penstock::client {

std::string DevicesTable(const google::protobuf::RepeatedPtrField<v1::Device>& devices);
// "97% busy, 61.2 GiB used, 64 C, 655 W": what the driver tells of it; empty if nothing.
std::string ReadingText(const v1::DeviceReading& reading);
// One line: "GPU-... quarantined: ...".
std::string DeviceText(const v1::Device& device);

}  // namespace penstock::client
