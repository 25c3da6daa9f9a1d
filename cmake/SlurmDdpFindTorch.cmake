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
  # Marked, because a wrapper or sitecustomize may print lines of its own.
  execute_process(COMMAND python3 -c
      "import importlib.util as u, sys; s = u.find_spec('torch'); d = s and s.submodule_search_locations
print('\\nslurm_ddp_python=' + sys.executable + '\\nslurm_ddp_torch=' + (d[0] if d else '') + '\\nslurm_ddp_module=' + (s and s.origin or ''))"
    OUTPUT_VARIABLE lines RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT status EQUAL 0)
    set(${problem} "SLURM_DDP_TORCH=python asks python3 for its PyTorch, but python3 cannot be run (${status}). Activate the environment that has PyTorch, or give -DSLURM_DDP_TORCH_ROOT=DIR." PARENT_SCOPE)
    return()
  endif()
  foreach(name python torch module)
    string(REGEX MATCH "(^|\n)slurm_ddp_${name}=([^\n]*)" line "${lines}")
    set(${name} "${CMAKE_MATCH_2}")
  endforeach()
  if(NOT python)
    set(${problem} "SLURM_DDP_TORCH=python asks python3 for its PyTorch, but the python3 in PATH does not run Python code. Activate the environment that has PyTorch, or give -DSLURM_DDP_TORCH_ROOT=DIR." PARENT_SCOPE)
    return()
  endif()
  if(NOT torch AND module)
    set(${problem} "the module torch of ${python} is the file ${module}, which is not PyTorch. Rename this file, or give -DSLURM_DDP_TORCH_ROOT=DIR." PARENT_SCOPE)
    return()
  endif()
  if(NOT torch)
    set(${problem} "${python} has no PyTorch. Activate the environment that has it, or install it (pip install torch), or give -DSLURM_DDP_TORCH_ROOT=DIR." PARENT_SCOPE)
    return()
  endif()
  set(${result} "${torch}" PARENT_SCOPE)
endfunction()

# Sets `result` to the root of the wheel to which a directory with TorchConfig.cmake belongs, or to nothing if it
# does not belong to a wheel.
function(slurm_ddp_wheel_of directory result)
  set(${result} "" PARENT_SCOPE)
  get_filename_component(root "${directory}/../../.." ABSOLUTE)
  if(directory AND EXISTS "${root}/lib/libtorch_cpu.so" AND EXISTS "${root}/lib/libc10.so")
    set(${result} "${root}" PARENT_SCOPE)
  endif()
endfunction()

# Looks for TorchConfig.cmake where find_package looks first: in Torch_DIR, Torch_ROOT and CMAKE_PREFIX_PATH, as
# variables and in the environment. Sets `result` to the root of the wheel that contains it, or to nothing if it is not part
# of a wheel: then find_package(Torch) may find it.
function(slurm_ddp_wheel_in_prefix_path result)
  set(${result} "" PARENT_SCOPE)
  foreach(name Torch_ROOT Torch_DIR CMAKE_PREFIX_PATH)
    file(TO_CMAKE_PATH "$ENV{${name}}" environment_${name})
  endforeach()
  find_path(directory TorchConfig.cmake
    HINTS ${Torch_DIR} ${Torch_ROOT} ${environment_Torch_ROOT} ${CMAKE_PREFIX_PATH} ${environment_Torch_DIR}
          ${environment_CMAKE_PREFIX_PATH}
    PATH_SUFFIXES . Torch share/cmake/Torch torch/share/cmake/Torch NO_CACHE NO_DEFAULT_PATH)
  if(directory)
    slurm_ddp_wheel_of("${directory}" root)
    set(${result} "${root}" PARENT_SCOPE)
    return()
  endif()
  # An environment is often in CMAKE_PREFIX_PATH for something else, so its PyTorch is not used without being asked for.
  foreach(prefix ${CMAKE_PREFIX_PATH} ${environment_CMAKE_PREFIX_PATH})
    file(GLOB roots "${prefix}/lib/python3*/site-packages/torch")
    foreach(root ${roots})
      message(STATUS "slurm_ddp: CMAKE_PREFIX_PATH does not lead to ${root}; to use this PyTorch, give -DSLURM_DDP_TORCH_ROOT=${root}")
    endforeach()
  endforeach()
endfunction()

# Reads the release of the libtorch in `root`. Sets `problem` to one sentence if programs cannot be built with it.
function(slurm_ddp_inspect_wheel root version problem)
  set(${version} "" PARENT_SCOPE)
  set(${problem} "" PARENT_SCOPE)
  if(NOT IS_ABSOLUTE "${root}")
    set(${problem} "SLURM_DDP_TORCH_ROOT is ${root}, a relative path, which does not have the same meaning for cmake, compiler and linker; give the absolute path." PARENT_SCOPE)
    return()
  endif()
  if(EXISTS "${root}" AND NOT IS_DIRECTORY "${root}")
    set(${problem} "SLURM_DDP_TORCH_ROOT is ${root}, which is a file; give the directory \"torch\" in site-packages, or libtorch's own." PARENT_SCOPE)
    return()
  endif()
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
  if(NOT EXISTS "${header}")
    set(${problem} "${root} has no include/torch/csrc/api/include/torch/version.h, so its release is unknown. SLURM_DDP_TORCH_ROOT is the directory \"torch\" in site-packages, or libtorch's own." PARENT_SCOPE)
    return()
  endif()
  # A build after an upgrade of the wheel in place starts with cmake.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${header}")
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
  else()
    # The constructor of c10::Error from the old std::string. Wheels may come without TorchConfig.cmake.
    file(STRINGS "${root}/lib/libc10.so" old_abi REGEX "_ZN3c105ErrorC[12]ENS_14SourceLocationESs" LIMIT_COUNT 1)
    if(NOT old_abi AND EXISTS "${root}/share/cmake/Torch/TorchConfig.cmake")
      file(STRINGS "${root}/share/cmake/Torch/TorchConfig.cmake" old_abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
    endif()
    if(old_abi)
      set(${problem} "${root} (PyTorch ${release}) was built with libstdc++'s pre-C++11 ABI, which other C++ libraries do not use; use a wheel of PyTorch 2.7 or newer, or the archive libtorch-cxx11-abi." PARENT_SCOPE)
    endif()
  endif()
endfunction()

# Sets `result` to the file of an imported library. Packages set the location of one configuration or of none.
function(slurm_ddp_file_of target result)
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  set(properties IMPORTED_LOCATION)
  foreach(configuration ${configurations})
    list(APPEND properties IMPORTED_LOCATION_${configuration})
  endforeach()
  foreach(property ${properties} IMPORTED_LOCATION_RELEASE)
    get_target_property(file ${target} ${property})
    if(file)
      break()
    endif()
  endforeach()
  set(${result} "${file}" PARENT_SCOPE)
endfunction()

# Sets `problem` if the project finds another libtorch by its own find_package(Torch).
function(slurm_ddp_refuse_second_torch root problem)
  set(${problem} "" PARENT_SCOPE)
  if(NOT TARGET torch_cpu)
    return()
  endif()
  slurm_ddp_file_of(torch_cpu other)
  get_filename_component(ours "${root}/lib/libtorch_cpu.so" REALPATH)
  get_filename_component(theirs "${other}" REALPATH)
  if(NOT other)
    set(other "the target torch_cpu, which has no location,")
  endif()
  if(NOT theirs STREQUAL ours)
    set(${problem} "one program cannot link two copies of libtorch: ${other} from find_package(Torch), and ${root}/lib/libtorch_cpu.so. Remove the find_package(Torch), or let slurm_ddp use its libtorch." PARENT_SCOPE)
  endif()
endfunction()

# The same check at the end of the directory, for a find_package(Torch) that follows.
function(slurm_ddp_refuse_later_torch root)
  slurm_ddp_refuse_second_torch("${root}" problem)
  if(problem)
    message(FATAL_ERROR "slurm_ddp: ${problem}")
  endif()
endfunction()

# Sets `problem` if the libtorch in `place` has not the release for which slurm_ddp was built, which is empty if any
# will do. libtorch promises no binary compatibility between releases: the linker would name symbols, not the cause.
function(slurm_ddp_refuse_other_release version place built_with problem)
  set(${problem} "" PARENT_SCOPE)
  string(FIND "${version}." "${built_with}." position)
  if(NOT built_with STREQUAL "" AND NOT position EQUAL 0)
    set(${problem} "slurm_ddp was built with libtorch ${built_with}, but ${place} is libtorch ${version}. Set SLURM_DDP_TORCH_ROOT or Torch_DIR to a libtorch ${built_with}, or build slurm_ddp with this one." PARENT_SCOPE)
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

# Sets `result` to the root of the wheel to use, or to nothing if find_package(Torch) decides, and `found` to the root
# that later runs of cmake should use if they find none. Sets `problem` to one sentence if there is no such wheel.
# In a package, slurm_ddp_built_with_wheel is the root of its build.
function(slurm_ddp_choose_wheel result found problem)
  set(${found} "" PARENT_SCOPE)
  set(${problem} "" PARENT_SCOPE)
  set(${result} "${SLURM_DDP_TORCH_ROOT}" PARENT_SCOPE)
  string(TOUPPER "${SLURM_DDP_TORCH}" switch)
  if(NOT "${SLURM_DDP_TORCH}" MATCHES "^(system|python|)$" AND NOT switch MATCHES "^(ON|TRUE|YES|Y|1|OFF|FALSE|NO|N|0)$")
    set(${problem} "SLURM_DDP_TORCH is ${SLURM_DDP_TORCH}, which is not one of system, python, ON and OFF; give one of these, or -DSLURM_DDP_TORCH_ROOT=DIR." PARENT_SCOPE)
    return()
  endif()
  if(SLURM_DDP_TORCH_ROOT)
    if("${SLURM_DDP_TORCH}" STREQUAL "python" AND NOT "$CACHE{SLURM_DDP_TORCH_ROOT}" STREQUAL "")
      message(STATUS "slurm_ddp: SLURM_DDP_TORCH_ROOT is given, so python3 is not asked for its PyTorch")
    endif()
    return()
  endif()
  set(wheel "")
  set(why "")
  set(earlier "")
  if("$CACHE{SLURM_DDP_TORCH_FOUND_FOR}" STREQUAL "${SLURM_DDP_TORCH}")
    set(earlier "$CACHE{SLURM_DDP_TORCH_FOUND}")
  endif()
  if(NOT "${SLURM_DDP_TORCH}" STREQUAL "python")
    slurm_ddp_wheel_in_prefix_path(wheel)
  elseif(NOT earlier)
    slurm_ddp_python_torch(wheel why)
  endif()
  if(NOT wheel)
    set(wheel "${earlier}")
  endif()
  set(${found} "${wheel}" PARENT_SCOPE)
  if(NOT wheel AND NOT SLURM_DDP_TORCH)
    set(wheel "${slurm_ddp_built_with_wheel}")
  endif()
  set(${result} "${wheel}" PARENT_SCOPE)
  set(${problem} "${why}" PARENT_SCOPE)
endfunction()

# slurm_ddp_find_torch(<target> <problem> [<release>]): follows SLURM_DDP_TORCH_ROOT and SLURM_DDP_TORCH, links `target`
# to the libtorch that they name, and sets Torch_VERSION, and SLURM_DDP_TORCH_ROOT if it is a wheel. A libtorch of
# another release than <release>, such as "2.15", is refused. Sets `problem` to one sentence instead, and links nothing, if that is impossible.
# A macro, because find_package sets variables.
macro(slurm_ddp_find_torch target problem)
  slurm_ddp_choose_wheel(slurm_ddp_wheel slurm_ddp_found_wheel ${problem})
  if("${${problem}}" STREQUAL "" AND slurm_ddp_wheel)
    slurm_ddp_inspect_wheel("${slurm_ddp_wheel}" Torch_VERSION ${problem})
    if("${${problem}}" STREQUAL "")
      slurm_ddp_refuse_other_release("${Torch_VERSION}" "${slurm_ddp_wheel}" "${ARGN}" ${problem})
    endif()
    if("${${problem}}" STREQUAL "")
      slurm_ddp_refuse_second_torch("${slurm_ddp_wheel}" ${problem})
    endif()
    if("${${problem}}" STREQUAL "")
      slurm_ddp_one_fmt(slurm_ddp_fmt_first ${problem})
    endif()
    if("${${problem}}" STREQUAL "")
      slurm_ddp_link_wheel(${target} "${slurm_ddp_wheel}" "${slurm_ddp_fmt_first}")
      # Deferred arguments are evaluated late, when the variable may have changed.
      cmake_language(EVAL CODE "cmake_language(DEFER CALL slurm_ddp_refuse_later_torch [[${slurm_ddp_wheel}]])")
      set(SLURM_DDP_TORCH_ROOT "${slurm_ddp_wheel}")
    endif()
  elseif("${${problem}}" STREQUAL "")
    find_package(Torch QUIET)
    slurm_ddp_wheel_of("${Torch_DIR}" slurm_ddp_wheel)
    if(NOT Torch_FOUND)
      set(${problem} "no libtorch was found. Install one (Debian: apt-get install libtorch-dev libopenblas0-pthread), or use PyTorch's wheel: -DSLURM_DDP_TORCH=python, or -DSLURM_DDP_TORCH_ROOT=DIR.")
    elseif(slurm_ddp_wheel)  # in a prefix that find_package derives, for example, from PATH
      unset(Torch_DIR CACHE)
      set(${problem} "find_package(Torch) found the wheel ${slurm_ddp_wheel}, whose TorchConfig.cmake would link parts of two libtorch; give -DSLURM_DDP_TORCH_ROOT=${slurm_ddp_wheel} to use this wheel, or -DTorch_DIR=DIR with another TorchConfig.cmake.")
    else()
      slurm_ddp_refuse_other_release("${Torch_VERSION}" "${Torch_DIR}" "${ARGN}" ${problem})
    endif()
    if("${${problem}}" STREQUAL "")
      slurm_ddp_link_system_torch(${target})
    endif()
  endif()
  if("${${problem}}" STREQUAL "")
    # For a later run with a different python3 in PATH. Not in SLURM_DDP_TORCH_ROOT, where a root that the user gave
    # is, and only now: a root that was refused must not keep a better one from being found.
    set(SLURM_DDP_TORCH_FOUND "${slurm_ddp_found_wheel}" CACHE INTERNAL "The wheel that SLURM_DDP_TORCH found")
    set(SLURM_DDP_TORCH_FOUND_FOR "${SLURM_DDP_TORCH}" CACHE INTERNAL "The value of SLURM_DDP_TORCH that found it")
  endif()
endmacro()
