// A daemon that wants tokens on TCP, and calls of any method by anybody.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/raw_call.h"

namespace penstock::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

inline Headers Bearer(const std::string& secret) {
  return {{"authorization", absl::StrCat("Bearer ", secret)}};
}

// Any method, unary or not, by its full name: sends one message, reads all there are.
inline RawReply CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                        const std::string& request, const Headers& headers) {
  return Make({.method = method, .requests = {request}, .headers = headers}, channel);
}

inline RawReply CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                        const google::protobuf::Message& request, const Headers& headers) {
  return CallRaw(channel, method, request.SerializeAsString(), headers);
}

// A unary method's reply, or its error.
template <typename Response>
Response CallOk(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                const google::protobuf::Message& request, const Headers& headers) {
  const RawReply reply = CallRaw(channel, method, request, headers);
  EXPECT_TRUE(reply.status.ok()) << method << ": " << reply.status.error_message();
  Response response;
  EXPECT_EQ(reply.messages.size(), 1u) << method;
  if (!reply.messages.empty()) {
    EXPECT_TRUE(response.ParseFromString(reply.messages[0]));
  }
  return response;
}

class DoorTest : public DaemonTest {
 protected:
  DoorTest() {
    options_.listen = "127.0.0.1:0";
    options_.require_token = true;
  }

  void Start() {
    DaemonTest::Start();
    tcp_ = Connect();
  }
  std::shared_ptr<grpc::Channel> Connect(const std::shared_ptr<grpc::ChannelCredentials>&
                                             credentials = grpc::InsecureChannelCredentials()) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    arguments.SetInt(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
    return grpc::CreateCustomChannel(daemon_->tcp_address(), credentials, arguments);
  }

  // Over the unix socket, whose caller is an admin.
  v1::CreateTokenResponse MakeToken(const std::string& user, v1::Role role,
                                    int64_t expires_in_seconds = 0) {
    v1::CreateTokenRequest request;
    request.set_user(user);
    request.set_role(role);
    if (expires_in_seconds != 0) {
      request.mutable_expire_time()->set_seconds(static_cast<int64_t>(time(nullptr)) +
                                                 expires_in_seconds);
    }
    return CallOk<v1::CreateTokenResponse>(client_->channel, "penstock.v1.AdminService/CreateToken",
                                           request, {});
  }
  Headers As(const std::string& user, v1::Role role) {
    return Bearer(MakeToken(user, role).secret());
  }
  void Revoke(const std::string& name) {
    v1::RevokeTokenRequest request;
    request.set_name(name);
    CallOk<v1::RevokeTokenResponse>(client_->channel, "penstock.v1.AdminService/RevokeToken",
                                    request, {});
  }
  std::vector<v1::AuditEntry> AuditLog() {
    v1::ListAuditEntriesRequest request;
    request.set_page_size(1000);
    const auto log = CallOk<v1::ListAuditEntriesResponse>(
        client_->channel, "penstock.v1.AdminService/ListAuditEntries", request, {});
    return {log.entries().begin(), log.entries().end()};
  }
  // A job of whoever has these headers, over TCP.
  std::string Submit(const Headers& headers, const Labels& labels) {
    return CallOk<v1::CreateJobResponse>(tcp_, "penstock.v1.JobService/CreateJob",
                                         MakeRequest(labels), headers)
        .job()
        .name();
  }

  std::shared_ptr<grpc::Channel> tcp_;
};

}  // namespace penstock::server
