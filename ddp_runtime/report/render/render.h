// SPDX-License-Identifier: Apache-2.0
// One document in three formats. All of them show the same rows.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ddp_runtime/report/document/document.h"

namespace ddp::report {

// Schema slurm-ddp/report/1: the values, in base units (seconds, fractions), under stable keys.
nlohmann::json to_json(const Document& document);

// Tables in GitHub-flavored Markdown.
std::string to_markdown(const Document& document);

// One self-contained file: no scripts, no network, light and dark mode, printable. Well-formed XML.
std::string to_html(const Document& document);

}  // namespace ddp::report
