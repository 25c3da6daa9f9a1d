// SPDX-License-Identifier: Apache-2.0
// Where the time of a run under ddp-run went, over all of its generations and jobs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/report/document/document.h"
#include "ddp_runtime/report/record/resilience_record.h"

namespace ddp::report {

// A strip of time and the uses of it.
Section resilience_section(const ResilienceRecord& resilience);
// The starts of the program, the newest ones if there are many.
Section generations_section(const ResilienceRecord& resilience);

std::vector<std::pair<std::string, std::string>> resilience_glossary();

}  // namespace ddp::report
