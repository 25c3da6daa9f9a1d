// SPDX-License-Identifier: Apache-2.0
// How the guard makes Python programs tell where they stand: see watch/python/sitecustomize.py.
#pragma once

#include <string>
#include <string_view>

namespace ddp::guard {

// Beside ddp-guard, and in the programs' share/slurm-ddp.
inline constexpr std::string_view kPythonDirectory = "ddp-python";

// Returns the value of PYTHONPATH with this directory first. A directory that cannot be part of
// one, because its name contains a colon, is left out.
std::string with_python_directory(std::string_view directory, std::string_view path);

}  // namespace ddp::guard
