// Every method of every service of package penstock.v1, from the .proto files of the source tree: a
// new one is found without being named here.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "penstock/v1/admin_service.pb.h"
#include "penstock/v1/checkpoint_service.pb.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/transfer_service.pb.h"

namespace penstock::server {

inline std::vector<const google::protobuf::MethodDescriptor*> PublicMethods() {
  // Uses something of each file, so that it is linked in.
  for (const auto* message :
       {v1::ListTokensRequest::descriptor(), v1::ListCheckpointsRequest::descriptor(),
        v1::ListJobsRequest::descriptor(), v1::ListUploadsRequest::descriptor()}) {
    EXPECT_NE(message, nullptr);
  }
  std::vector<const google::protobuf::MethodDescriptor*> methods;
  for (const auto& entry : std::filesystem::directory_iterator(PENSTOCK_PUBLIC_PROTOS)) {
    const std::string name = "penstock/v1/" + entry.path().filename().string();
    const auto* file = google::protobuf::DescriptorPool::generated_pool()->FindFileByName(name);
    EXPECT_NE(file, nullptr) << name << " is not linked into the test: use something of it above";
    if (file == nullptr) continue;
    for (int i = 0; i < file->service_count(); ++i) {
      for (int k = 0; k < file->service(i)->method_count(); ++k) {
        methods.push_back(file->service(i)->method(k));
      }
    }
  }
  return methods;
}

// "penstock.v1.JobService/CancelJob", as the method table has it.
inline std::string FullName(const google::protobuf::MethodDescriptor& method) {
  return absl::StrCat(method.service()->full_name(), "/", method.name());
}

}  // namespace penstock::server
