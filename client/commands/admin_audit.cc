#include "client/commands/admin_audit.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/access_text.h"
#include "engine/base/status.h"
#include "server/access/audit_chain.h"
#include "server/reasons.h"

namespace penstock::client {
namespace {

constexpr int64_t kPageSize = 500;

struct ListOptions {
  int64_t after = 0;
  int64_t limit = 1000;
};

absl::StatusOr<v1::ListAuditEntriesResponse> Page(RpcClient& client, int64_t after,
                                                  int64_t entries) {
  v1::ListAuditEntriesRequest request;
  request.set_after(after);
  request.set_page_size(static_cast<int32_t>(std::min(kPageSize, entries)));
  return client.Call(client.admin(), &v1::AdminService::Stub::ListAuditEntries, request);
}

ExitCode List(const Context& context, const ListOptions& options, RpcClient& client) {
  v1::ListAuditEntriesResponse all;
  int64_t after = options.after;
  while (all.entries_size() < options.limit) {
    auto page = Page(client, after, options.limit - all.entries_size());
    if (!page.ok()) return context.Fail(page.status());
    all.set_last_sequence(page->last_sequence());
    all.set_last_hash(page->last_hash());
    if (page->entries().empty()) break;
    for (v1::AuditEntry& entry : *page->mutable_entries()) {
      after = entry.sequence();
      *all.add_entries() = std::move(entry);
    }
  }
  return context.Print(all, [&] { return AuditTable(all.entries()); });
}

// The chain is computed here, from the first entry on: the daemon is not asked whether it is whole.
// `known` is a hash that was noted before, or empty: a log that was cut and grew again lacks it.
ExitCode Verify(const Context& context, const std::string& known, RpcClient& client) {
  server::AuditChain chain;
  bool found = known.empty();
  while (true) {
    const auto page = Page(client, chain.sequence(), kPageSize);
    if (!page.ok()) return context.Fail(page.status());
    for (const v1::AuditEntry& entry : page->entries()) {
      if (absl::Status follows = chain.Follow(entry); !follows.ok()) return context.Fail(follows);
      found = found || entry.hash() == known;
    }
    if (!page->entries().empty()) continue;
    const absl::Status end = chain.CheckEnd(page->last_sequence(), page->last_hash());
    if (!end.ok()) return context.Fail(end);
    break;
  }
  if (!found) {
    return context.Fail(Error(absl::StatusCode::kDataLoss, reason::kAuditBroken,
                              absl::StrCat("the audit log is broken: no entry has the hash ", known,
                                           "; entries were taken out and others written"),
                              {{"hash", known}}));
  }
  v1::ListAuditEntriesResponse result;
  result.set_last_sequence(chain.sequence());
  result.set_last_hash(chain.hash());
  return context.Print(result, [&] {
    return absl::StrCat("the audit log is whole: ", chain.sequence(),
                        " entries, the last has hash ", chain.hash(), "\n");
  });
}

}  // namespace

void AddAudit(CLI::App& admin, Context& context) {
  CLI::App* const audit = admin.add_subcommand("audit", "What was done by whom");
  audit->require_subcommand(1);
  auto options = std::make_shared<ListOptions>();
  CLI::App* const list = audit->add_subcommand("list", "Entries, oldest first");
  list->add_option("--after", options->after, "Entries after this number")->capture_default_str();
  list->add_option("--limit", options->limit, "Most entries to list")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->capture_default_str();
  OnConnected(*list, context,
              [&context, options](RpcClient& client) { return List(context, *options, client); });
  auto known = std::make_shared<std::string>();
  CLI::App* const verify =
      audit->add_subcommand("verify", "Whether no entry was changed, taken out or put in");
  verify->add_option("--has", *known,
                     "A hash that verify printed before: the log has to have that entry still");
  OnConnected(*verify, context,
              [&context, known](RpcClient& client) { return Verify(context, *known, client); });
}

}  // namespace penstock::client
