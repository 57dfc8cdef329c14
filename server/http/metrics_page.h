// The text of /metrics. docs/metrics.md has a row for each of its families, which a test compares.
#pragma once

#include <string>

#include "server/http/metrics_collector.h"

namespace penstock::server {

std::string MetricsPage(const MetricsSnapshot& snapshot);

}  // namespace penstock::server
