// The data of a JobSpec, checked and resolved: datasets, their formats and columns, the tokenizer
// and the chat template. Part of ResolveJobSpec().
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "penstock/v1/job_spec.pb.h"

namespace penstock::server {

// Fills in and checks spec.type, spec.data and the files of spec.evaluation. Reads dataset_info
// files and chat templates: the job runs what they said then, whatever happens to them in the
// queue. REQUIRES: spec.model is resolved.
absl::Status ResolveData(const std::vector<std::string>& allowed_roots, v1::JobSpec& spec);

// Of a resolved spec.
DataConfig ToDataConfig(const v1::DataSpec& data);
std::vector<DatasetSource> ToEvaluationDatasets(const v1::JobSpec& spec);

}  // namespace penstock::server
