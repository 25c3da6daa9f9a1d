// SPDX-License-Identifier: Apache-2.0
// The kernels by name, as the .cu files define them.
#pragma once

#include <array>
#include <string_view>

#include "ddp_runtime/comm/element_type.h"

namespace ddp::kernels {

struct PackName {
  comm::ElementType from;
  comm::ElementType to;
  const char* name;
};
inline constexpr std::array kPackNames = {
    PackName{comm::ElementType::f32, comm::ElementType::f32, "slurm_ddp_pack_f32_f32"},
    PackName{comm::ElementType::f32, comm::ElementType::bf16, "slurm_ddp_pack_f32_bf16"},
    PackName{comm::ElementType::f32, comm::ElementType::f16, "slurm_ddp_pack_f32_f16"},
    PackName{comm::ElementType::bf16, comm::ElementType::f32, "slurm_ddp_pack_bf16_f32"},
    PackName{comm::ElementType::bf16, comm::ElementType::bf16, "slurm_ddp_pack_bf16_bf16"},
    PackName{comm::ElementType::f16, comm::ElementType::f32, "slurm_ddp_pack_f16_f32"},
    PackName{comm::ElementType::f16, comm::ElementType::f16, "slurm_ddp_pack_f16_f16"},
};

struct NameOfType {
  comm::ElementType type;
  const char* name;
};
inline constexpr std::array kCheckNames = {
    NameOfType{comm::ElementType::f32, "slurm_ddp_check_f32"},
    NameOfType{comm::ElementType::bf16, "slurm_ddp_check_bf16"},
    NameOfType{comm::ElementType::f16, "slurm_ddp_check_f16"},
};
// By the type of the gradient.
inline constexpr std::array kAdamWNames = {
    NameOfType{comm::ElementType::f32, "slurm_ddp_adamw_f32"},
    NameOfType{comm::ElementType::bf16, "slurm_ddp_adamw_bf16"},
};

}  // namespace ddp::kernels
