# SPDX-License-Identifier: Apache-2.0
# Finds a libtorch of one of two kinds and links an interface target to it:
#
# - system: the libtorch that find_package(Torch) finds, such as Debian's libtorch-dev;
# - wheel: the directory "torch" of a Python installation, or libtorch unpacked from an archive.
#
# A wheel is used through its files alone. Its TorchConfig.cmake enables the CUDA language, looks for libraries
# in the system's directories first (so that Debian's libc10 is linked beside the wheel's), and links the
# CUDA toolkit's runtime and NCCL where the wheel has its own.
#
# This file is also installed: in a package, slurm_ddp::torch is the libtorch of the machine that
# uses the package.

# Sets `result` to the directory of the package "torch" of the python3 in PATH, and `problem` to one sentence
# if there is none. Does not import torch, which needs libraries that C++ programs can do without.
function(slurm_ddp_python_torch result problem)
  set(${result} "" PARENT_SCOPE)
  set(${problem} "" PARENT_SCOPE)
  execute_process(COMMAND python3 -c
      "import importlib.util as u, sys; s = u.find_spec('torch'); print(sys.executable); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE lines RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT status EQUAL 0)
    set(${problem} "SLURM_DDP_TORCH=python asks python3 for its PyTorch, but python3 cannot be run (${status}). Activate the environment that has PyTorch, or give -DSLURM_DDP_TORCH_ROOT=DIR." PARENT_SCOPE)
    return()
  endif()
  string(REGEX MATCH "^[^\n]*" python "${lines}")
  string(REGEX MATCH "\n(.+)$" found "${lines}")
  if(NOT found)
    set(${problem} "${python} has no PyTorch. Activate the environment that has it, or install it (pip install torch), or give -DSLURM_DDP_TORCH_ROOT=DIR." PARENT_SCOPE)
    return()
  endif()
  set(${result} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

# Looks for TorchConfig.cmake in Torch_DIR and CMAKE_PREFIX_PATH. Sets `result` to the root of the
# wheel that contains it, or to nothing if it is not part of a wheel: then find_package(Torch) may
# find it.
function(slurm_ddp_wheel_in_prefix_path result)
  set(${result} "" PARENT_SCOPE)
  file(TO_CMAKE_PATH "$ENV{CMAKE_PREFIX_PATH}" from_environment)
  find_path(directory TorchConfig.cmake
    HINTS ${Torch_DIR} ${Torch_ROOT} ${CMAKE_PREFIX_PATH} ${from_environment}
    PATH_SUFFIXES . Torch share/cmake/Torch torch/share/cmake/Torch NO_CACHE NO_DEFAULT_PATH)
  if(directory)
    get_filename_component(root "${directory}/../../.." ABSOLUTE)
    if(EXISTS "${root}/lib/libtorch_cpu.so" AND EXISTS "${root}/lib/libc10.so")
      set(${result} "${root}" PARENT_SCOPE)
    endif()
  endif()
endfunction()

# Reads the release of the libtorch in `root`. Sets `problem` to one sentence if programs cannot be built with it.
function(slurm_ddp_inspect_wheel root version problem)
  set(${version} "" PARENT_SCOPE)
  set(${problem} "" PARENT_SCOPE)
  if(NOT IS_DIRECTORY "${root}")
    set(${problem} "SLURM_DDP_TORCH_ROOT is ${root}, which does not exist: was its Python environment removed? Give -DSLURM_DDP_TORCH_ROOT=DIR with the directory \"torch\" of another environment." PARENT_SCOPE)
    return()
  endif()
  foreach(file lib/libtorch_cpu.so lib/libc10.so include/torch/csrc/api/include/torch/torch.h)
    if(NOT EXISTS "${root}/${file}")
      set(${problem} "${root} has no ${file}, so it is not a PyTorch installation with headers and libraries. SLURM_DDP_TORCH_ROOT is the directory \"torch\" in site-packages, or libtorch's own." PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(header "${root}/include/torch/headeronly/version.h")  # since 2.9
  if(NOT EXISTS "${header}")
    set(header "${root}/include/torch/csrc/api/include/torch/version.h")
  endif()
  set(numbers "")
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS "${header}" line REGEX "#define TORCH_VERSION_${part} [0-9]+")
    string(REGEX MATCH "[0-9]+$" number "${line}")
    list(APPEND numbers "${number}")
  endforeach()
  list(JOIN numbers "." release)
  set(${version} "${release}" PARENT_SCOPE)
  if(NOT release MATCHES "^[0-9]+[.][0-9]+[.][0-9]+$")
    set(${problem} "${header} does not say which release of PyTorch it belongs to." PARENT_SCOPE)
  elseif(release VERSION_LESS 2.4)
    set(${problem} "${root} is PyTorch ${release}; slurm_ddp needs 2.4 or newer, or Debian's libtorch 1.13 (-DSLURM_DDP_TORCH=system)." PARENT_SCOPE)
  elseif(EXISTS "${root}/share/cmake/Torch/TorchConfig.cmake")
    file(STRINGS "${root}/share/cmake/Torch/TorchConfig.cmake" old_abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
    if(old_abi)
      set(${problem} "${root} (PyTorch ${release}) was built with libstdc++'s pre-C++11 ABI, which other C++ libraries do not use; use a wheel of PyTorch 2.7 or newer, or the archive libtorch-cxx11-abi." PARENT_SCOPE)
    endif()
  endif()
endfunction()

# Sets `problem` if the project has already found another libtorch by its own find_package(Torch).
function(slurm_ddp_refuse_second_torch root problem)
  set(${problem} "" PARENT_SCOPE)
  if(NOT TARGET torch_cpu)
    return()
  endif()
  get_target_property(other torch_cpu IMPORTED_LOCATION)
  if(NOT other)
    get_target_property(other torch_cpu IMPORTED_LOCATION_RELEASE)
  endif()
  get_filename_component(ours "${root}/lib/libtorch_cpu.so" REALPATH)
  get_filename_component(theirs "${other}" REALPATH)
  if(other AND NOT theirs STREQUAL ours)
    set(${problem} "one program cannot link two copies of libtorch: ${other} from find_package(Torch), and ${root}/lib/libtorch_cpu.so. Remove the find_package(Torch), or let slurm_ddp use its libtorch." PARENT_SCOPE)
  endif()
endfunction()

# A wheel contains the headers of its own {fmt}, without the library. Sets `directory` to an include
# directory, to be searched first, that has only the headers of fmt::fmt. Sets `problem` if these
# headers and the library are of different releases.
function(slurm_ddp_one_fmt directory problem)
  set(${directory} "" PARENT_SCOPE)
  set(${problem} "" PARENT_SCOPE)
  get_target_property(include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
  list(GET include 0 include)
  foreach(name base.h core.h)
    if(EXISTS "${include}/fmt/${name}")
      file(STRINGS "${include}/fmt/${name}" line REGEX "#define FMT_VERSION [0-9]+")
      if(line)
        break()
      endif()
    endif()
  endforeach()
  string(REGEX MATCH "[0-9]+$" number "${line}")
  if(fmt_VERSION AND number)
    math(EXPR major "${number} / 10000")
    if(NOT fmt_VERSION MATCHES "^${major}[.]")
      set(${problem} "one program cannot have two releases of fmt: the headers in ${include}/fmt are of ${major}, and ${fmt_DIR} is fmt ${fmt_VERSION}. Point fmt_DIR or CMAKE_PREFIX_PATH to one of them." PARENT_SCOPE)
      return()
    endif()
  endif()
  set(first "${CMAKE_CURRENT_BINARY_DIR}/slurm_ddp_fmt_first")
  file(MAKE_DIRECTORY "${first}")
  file(CREATE_LINK "${include}/fmt" "${first}/fmt" SYMBOLIC)
  set(${directory} "${first}" PARENT_SCOPE)
endfunction()

# Adds to an interface target what find_package(Torch) found: headers as system headers (their warnings are not ours),
# libraries and flags. Torch's own imported targets do not always have all of these.
function(slurm_ddp_link_system_torch target)
  target_link_libraries(${target} INTERFACE ${TORCH_LIBRARIES})
  target_include_directories(${target} SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  separate_arguments(flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
  target_compile_options(${target} INTERFACE ${flags})
endfunction()

# Gives an interface target the CPU half of the wheel in `root`: libtorch_cpu and libc10. libtorch itself would
# bring libtorch_cuda, a third of a gigabyte that every start of a program pays for.
function(slurm_ddp_link_wheel target root fmt_first)
  target_include_directories(${target} SYSTEM INTERFACE ${fmt_first} "${root}/include" "${root}/include/torch/csrc/api/include")
  # The wheels' libraries export parts of a C++ library of their own; in 2.11 std::filesystem::remove_all
  # jumps to address 0. The first library in the list is the first to be searched: it must be the system's.
  target_link_libraries(${target} INTERFACE "-Wl,--push-state,--no-as-needed,-lstdc++,--pop-state"
    "${root}/lib/libtorch_cpu.so" "${root}/lib/libc10.so")
  file(GLOB neighbors "${root}/../nvidia/*/lib")
  if(neighbors)  # libtorch_cpu of a CUDA wheel needs the CUDA runtime and CUPTI
    list(JOIN neighbors ":" neighbors)
    target_link_options(${target} INTERFACE "LINKER:-rpath-link,${neighbors}")
  endif()
endfunction()

# slurm_ddp_find_torch(<target> <problem>): follows SLURM_DDP_TORCH_ROOT and SLURM_DDP_TORCH, links `target` to
# the libtorch that they name, and sets Torch_VERSION, and SLURM_DDP_TORCH_ROOT in the cache if it is a wheel.
# Sets `problem` to one sentence instead if that is impossible.
# A macro, because find_package sets variables.
macro(slurm_ddp_find_torch target problem)
  set(${problem} "")
  if(NOT SLURM_DDP_TORCH_ROOT)
    set(slurm_ddp_wheel "")
    if("${SLURM_DDP_TORCH}" STREQUAL "python")
      slurm_ddp_python_torch(slurm_ddp_wheel ${problem})
    else()
      slurm_ddp_wheel_in_prefix_path(slurm_ddp_wheel)
    endif()
    if(slurm_ddp_wheel)
      # Cached, so that a different python3 in PATH later does not change this build.
      set(SLURM_DDP_TORCH_ROOT "${slurm_ddp_wheel}" CACHE PATH "Directory of a PyTorch 2.x or a libtorch 2.x" FORCE)
    endif()
  endif()
  if("${${problem}}" STREQUAL "" AND SLURM_DDP_TORCH_ROOT)
    slurm_ddp_inspect_wheel("${SLURM_DDP_TORCH_ROOT}" Torch_VERSION ${problem})
    if("${${problem}}" STREQUAL "")
      slurm_ddp_refuse_second_torch("${SLURM_DDP_TORCH_ROOT}" ${problem})
    endif()
    if("${${problem}}" STREQUAL "")
      slurm_ddp_one_fmt(slurm_ddp_fmt_first ${problem})
    endif()
    if("${${problem}}" STREQUAL "")
      slurm_ddp_link_wheel(${target} "${SLURM_DDP_TORCH_ROOT}" "${slurm_ddp_fmt_first}")
    endif()
  elseif("${${problem}}" STREQUAL "")
    find_package(Torch QUIET)
    if(Torch_FOUND)
      slurm_ddp_link_system_torch(${target})
    else()
      set(${problem} "no libtorch was found. Install one (Debian: apt-get install libtorch-dev libopenblas0-pthread), or use PyTorch's wheel: -DSLURM_DDP_TORCH=python, or -DSLURM_DDP_TORCH_ROOT=DIR.")
    endif()
  endif()
endmacro()
