// Commands about where a checkpoint comes from, and about its bytes, as in commands.h. But for
// `key show` they read files, and need no daemon.
#pragma once

#include "client/commands/context.h"

namespace CLI {
class App;
}

namespace penstock::client {

void AddVerify(CLI::App& app, Context& context);
void AddDiff(CLI::App& app, Context& context);
void AddKey(CLI::App& app, Context& context);

}  // namespace penstock::client
