#include <memory>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/access_text.h"
#include "client/commands/admin_audit.h"
#include "client/commands/commands.h"

namespace penstock::client {
namespace {

constexpr int32_t kPageSize = 500;

struct CreateOptions {
  std::string user, role, expires, comment;
};

ExitCode CreateToken(const Context& context, const CreateOptions& options, RpcClient& client) {
  v1::CreateTokenRequest request;
  request.set_user(options.user);
  request.set_comment(options.comment);
  v1::Role role = v1::ROLE_UNSPECIFIED;
  v1::Role_Parse(absl::StrCat("ROLE_", absl::AsciiStrToUpper(options.role)), &role);
  request.set_role(role);
  if (!options.expires.empty()) {
    const absl::StatusOr<absl::Duration> period = ParsePeriod(options.expires);
    if (!period.ok()) return context.Fail(period.status());
    request.mutable_expire_time()->set_seconds(absl::ToUnixSeconds(absl::Now() + *period));
  }
  const absl::StatusOr<v1::CreateTokenResponse> response =
      client.Call(client.admin(), &v1::AdminService::Stub::CreateToken, request);
  if (!response.ok()) return context.Fail(response.status());
  if (!context.quiet && context.format == Format::kTable) {
    PrintTalk(absl::StrCat(response->token().name(), " of ", response->token().user(),
                           "; the secret is shown once:\n"));
  }
  return context.Print(*response, [&] { return absl::StrCat(response->secret(), "\n"); });
}

ExitCode ListTokens(const Context& context, RpcClient& client) {
  v1::ListTokensRequest request;
  request.set_page_size(kPageSize);
  v1::ListTokensResponse all;
  while (true) {
    absl::StatusOr<v1::ListTokensResponse> page =
        client.Call(client.admin(), &v1::AdminService::Stub::ListTokens, request);
    if (!page.ok()) return context.Fail(page.status());
    for (v1::Token& token : *page->mutable_tokens()) *all.add_tokens() = std::move(token);
    if (page->next_page_token().empty()) break;
    request.set_page_token(page->next_page_token());
  }
  return context.Print(all, [&] { return TokensTable(all.tokens()); });
}

ExitCode RevokeToken(const Context& context, const std::string& name, RpcClient& client) {
  v1::RevokeTokenRequest request;
  request.set_name(absl::StartsWith(name, "tokens/") ? name : absl::StrCat("tokens/", name));
  const absl::StatusOr<v1::RevokeTokenResponse> response =
      client.Call(client.admin(), &v1::AdminService::Stub::RevokeToken, request);
  if (!response.ok()) return context.Fail(response.status());
  return context.Print(*response,
                       [&] { return absl::StrCat(response->token().name(), " is revoked\n"); });
}

ExitCode Drain(const Context& context, const v1::DrainServerRequest& request, RpcClient& client) {
  const absl::StatusOr<v1::DrainServerResponse> response =
      client.Call(client.admin(), &v1::AdminService::Stub::DrainServer, request);
  if (!response.ok()) return context.Fail(response.status());
  return context.Print(*response, [&] {
    return response->status() == v1::SERVER_STATUS_SERVING ? "the daemon starts jobs\n"
                                                           : "the daemon starts no jobs\n";
  });
}

void AddToken(CLI::App& admin, Context& context) {
  CLI::App* const token = admin.add_subcommand("token", "Tokens: who may call the daemon");
  token->require_subcommand(1);
  auto options = std::make_shared<CreateOptions>();
  CLI::App* const create = token->add_subcommand("create", "Make a token and print its secret");
  create->add_option("--user", options->user, "Whose it is")->required();
  create->add_option("--role", options->role, "viewer, user or admin")
      ->required()
      ->check(CLI::IsMember({"viewer", "user", "admin"}));
  create->add_option("--expires", options->expires, "After this time: 12h, 30d; else never");
  create->add_option("--comment", options->comment, "What it is for");
  OnConnected(*create, context, [&context, options](RpcClient& client) {
    return CreateToken(context, *options, client);
  });
  OnConnected(*token->add_subcommand("list", "All tokens, without their secrets"), context,
              [&context](RpcClient& client) { return ListTokens(context, client); });
  auto name = std::make_shared<std::string>();
  CLI::App* const revoke = token->add_subcommand("revoke", "Refuse a token from now on");
  revoke->add_option("token", *name, "tokens/{id}, as list shows it")->required();
  OnConnected(*revoke, context,
              [&context, name](RpcClient& client) { return RevokeToken(context, *name, client); });
}

void AddDrain(CLI::App& admin, Context& context) {
  auto message = std::make_shared<std::string>();
  CLI::App* const drain = admin.add_subcommand("drain", "Start no more jobs; what runs, runs on");
  drain->add_option("--message", *message, "Why, for those who wait");
  OnConnected(*drain, context, [&context, message](RpcClient& client) {
    v1::DrainServerRequest request;
    request.set_draining(true);
    request.set_message(*message);
    return Drain(context, request, client);
  });
  OnConnected(
      *admin.add_subcommand("undrain", "Start jobs again"), context,
      [&context](RpcClient& client) { return Drain(context, v1::DrainServerRequest(), client); });
}

}  // namespace

void AddAdmin(CLI::App& app, Context& context) {
  CLI::App* const admin = app.add_subcommand("admin", "Tokens, audit log, drain: for admins");
  admin->require_subcommand(1);
  AddToken(*admin, context);
  AddAudit(*admin, context);
  AddDrain(*admin, context);
}

}  // namespace penstock::client
