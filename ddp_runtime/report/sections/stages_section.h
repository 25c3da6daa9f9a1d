// SPDX-License-Identifier: Apache-2.0
// The stages of a pipeline in the document of a run: which one is too heavy, and what would help.
#pragma once

#include <string>

#include "ddp_runtime/report/document/document.h"
#include "ddp_runtime/report/record/pipeline_record.h"

namespace ddp::report {

Section stages_section(const PipelineRecord& pipeline);

// What would shorten the time that ranks wait for their neighbors; empty if nothing is known.
std::string advice_for_stages(const PipelineRecord& pipeline);

}  // namespace ddp::report
