// SPDX-License-Identifier: Apache-2.0
// Divides the pieces of a model, such as its layers, among the stages of a pipeline. Pure.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace ddp::pipeline {

// How many pieces each stage has; they follow each other.
using Balance = std::vector<int>;

// The balance whose heaviest stage costs least. `costs` of the pieces, in any unit, at least 0. Of
// equally good ones, that with the most in the first stages. Throws UsageError if there are fewer
// pieces than stages.
Balance balanced(std::span<const double> costs, int stages);

// "3,4,4,3". Throws UsageError, which names `option`, for anything else, and for a stage without
// pieces.
Balance parse_balance(std::string_view text, std::string_view option);

// Throws UsageError unless the balance has this many stages and divides this many pieces.
void require_fitting(const Balance& balance, int stages, int pieces);

// The sums of the costs of each stage's pieces.
std::vector<double> costs_of_stages(std::span<const double> costs, const Balance& balance);

}  // namespace ddp::pipeline
