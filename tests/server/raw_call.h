// Calls of any method by its name, with any bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grpcpp/grpcpp.h"

namespace penstock::server {

struct RawCall {
  std::string method;  // "penstock.v1.JobService/GetJob", unary or not
  std::vector<std::string> requests;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::chrono::milliseconds limit{60'000};
  size_t most_replies = SIZE_MAX;  // then the call is cancelled: some streams have no end
};

struct RawReply {
  grpc::Status status;
  std::vector<std::string> messages;
};

// Sends the messages, then reads all replies there are.
RawReply Make(const RawCall& call, const std::shared_ptr<grpc::Channel>& channel);

}  // namespace penstock::server
