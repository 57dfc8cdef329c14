// penstock admin audit: list, and verify.
#pragma once

#include "client/commands/context.h"

namespace penstock::client {

void AddAudit(CLI::App& admin, Context& context);

}  // namespace penstock::client
