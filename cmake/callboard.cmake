# Compiler flags, callboard_library(), callboard_test() and the layer rule, in one place.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# -g1 keeps line numbers in stack traces at half the build cost of -g.
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1 -D_GLIBCXX_ASSERTIONS")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG -D_FORTIFY_SOURCE=2")

set(CALLBOARD_SANITIZER "" CACHE STRING "asan, tsan or nothing")
if(CALLBOARD_SANITIZER STREQUAL "asan")
  set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1 -D_GLIBCXX_ASSERTIONS -fno-omit-frame-pointer")
  add_compile_options(-fsanitize=address)
  add_link_options(-fsanitize=address,undefined)
elseif(CALLBOARD_SANITIZER STREQUAL "tsan")
  set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1 -D_GLIBCXX_ASSERTIONS -fno-omit-frame-pointer -Wno-tsan")
  add_compile_options(-fsanitize=thread)
  add_link_options(-fsanitize=thread)
endif()

find_program(CALLBOARD_MOLD mold)
if(CALLBOARD_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# What every target of ours is compiled with; generated and foreign code is not.
add_library(callboard_flags INTERFACE)
target_compile_options(callboard_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion
                                                 -Wno-missing-field-initializers)
# In a precompiled header g++ 12 does not know a system header again, and its optimiser says of
# std::string what is not so (its bug 105651).
if(NOT CALLBOARD_PCH)
  target_compile_options(callboard_flags INTERFACE -Werror)
endif()
target_include_directories(callboard_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(callboard_flags INTERFACE
                           CALLBOARD_VERSION="${PROJECT_VERSION}")
if(CALLBOARD_SANITIZER STREQUAL "asan")
  add_library(callboard_ubsan_full INTERFACE)
  target_compile_options(callboard_ubsan_full INTERFACE -fsanitize=undefined
                                                        -fno-sanitize-recover=undefined)
  # The checks that make Beast and Asio code explode in compile time are left out there.
  add_library(callboard_ubsan_reduced INTERFACE)
  target_compile_options(callboard_ubsan_reduced INTERFACE
    -fsanitize=undefined -fno-sanitize=vptr,null,alignment,object-size
    -fno-sanitize-recover=undefined)
else()
  add_library(callboard_ubsan_full INTERFACE)
  add_library(callboard_ubsan_reduced INTERFACE)
endif()

# Which layers a layer may link (docs/architecture.md, "Dependency direction"). A layer not named
# on the right of its own line is refused at configure time.
set(CALLBOARD_LAYER_protos "")
set(CALLBOARD_LAYER_core "core")
set(CALLBOARD_LAYER_net "core;net")
set(CALLBOARD_LAYER_server_domain "core;protos;server_domain")
set(CALLBOARD_LAYER_server_flows "core;protos;server_domain;server_flows")
set(CALLBOARD_LAYER_server_store "core;protos;server_domain;server_flows;server_store")
set(CALLBOARD_LAYER_server_rpc "core;protos;server_domain;server_flows;server_rpc")
set(CALLBOARD_LAYER_bridge_core "core;protos;net;bridge_core")
set(CALLBOARD_LAYER_bridge_grpc "core;protos;net;bridge_core;bridge_grpc")
set(CALLBOARD_LAYER_agent_core "core;protos;agent_core")
set(CALLBOARD_LAYER_agent_backends "core;protos;net;agent_core;agent_backends")
set(CALLBOARD_LAYER_agent_discovery "core;protos;agent_core;agent_discovery")
set(CALLBOARD_LAYER_agent_grpc "core;protos;agent_core;agent_grpc")
set(CALLBOARD_LAYER_agent_storage "core;protos;agent_core;agent_storage")
set(CALLBOARD_LAYER_apps "ANY")
set(CALLBOARD_LAYER_tests "ANY")

function(_callboard_check_layer name layer)
  if(NOT DEFINED CALLBOARD_LAYER_${layer})
    message(FATAL_ERROR "${name}: unknown layer '${layer}'; the layers are in cmake/callboard.cmake")
  endif()
  if("${CALLBOARD_LAYER_${layer}}" STREQUAL "ANY")
    return()
  endif()
  foreach(dep IN LISTS ARGN)
    if(TARGET ${dep})
      get_target_property(dep_layer ${dep} CALLBOARD_LAYER)
      if(dep_layer AND NOT dep_layer IN_LIST CALLBOARD_LAYER_${layer})
        message(FATAL_ERROR "${name} (layer ${layer}) may not link ${dep} (layer ${dep_layer}); "
                            "it may link: ${CALLBOARD_LAYER_${layer}}")
      endif()
    endif()
  endforeach()
endfunction()

# Foreign headers that most sources read, and what a target has to link for them. Never our own: a
# source that lacks an include of ours does not compile with them either.
set(CALLBOARD_PCH_BASE
  <algorithm> <array> <cstdint> <deque> <functional> <map> <memory> <optional> <set> <string>
  <string_view> <utility> <variant> <vector> <absl/container/flat_hash_map.h>
  <absl/functional/any_invocable.h> <absl/status/statusor.h> <absl/time/time.h> <fmt/format.h>)
set(CALLBOARD_PCH_callboard_protos
  <callboard/v1/agent.pb.h> <callboard/v1/control.pb.h>)
set(CALLBOARD_PCH_GTest::gtest <gtest/gtest.h> <gmock/gmock.h>)
# Fewer sources do not repay the time that the headers take.
set(CALLBOARD_PCH_SOURCES_MIN 4)

# Whether a target links another one, directly or not.
function(_callboard_links result name wanted)
  set(${result} OFF PARENT_SCOPE)
  set(seen)
  set(waiting ${name})
  while(waiting)
    list(POP_FRONT waiting next)
    if(next STREQUAL wanted)
      set(${result} ON PARENT_SCOPE)
      return()
    endif()
    if(NOT TARGET ${next} OR next IN_LIST seen)
      continue()
    endif()
    list(APPEND seen ${next})
    foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(linked ${next} ${property})
      if(linked)
        list(APPEND waiting ${linked})
      endif()
    endforeach()
  endwhile()
endfunction()

function(_callboard_precompile name)
  get_target_property(sources ${name} SOURCES)
  list(LENGTH sources count)
  if(NOT CALLBOARD_PCH OR count LESS CALLBOARD_PCH_SOURCES_MIN)
    return()
  endif()
  target_precompile_headers(${name} PRIVATE ${CALLBOARD_PCH_BASE})
  foreach(library callboard_protos GTest::gtest)
    _callboard_links(links ${name} ${library})
    if(links)
      target_precompile_headers(${name} PRIVATE ${CALLBOARD_PCH_${library}})
    endif()
  endforeach()
endfunction()

# callboard_library(NAME LAYER layer SOURCES ... [DEPS ...] [BEAST])
# BEAST marks a library whose sources include Beast or Asio: reduced UBSan set.
function(callboard_library name)
  cmake_parse_arguments(ARG "BEAST" "LAYER" "SOURCES;DEPS" ${ARGN})
  _callboard_check_layer(${name} ${ARG_LAYER} ${ARG_DEPS})
  add_library(${name} STATIC ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES CALLBOARD_LAYER ${ARG_LAYER})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE callboard_flags)
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  if(ARG_BEAST)
    target_link_libraries(${name} PRIVATE callboard_ubsan_reduced)
  else()
    target_link_libraries(${name} PRIVATE callboard_ubsan_full)
  endif()
  _callboard_precompile(${name})
endfunction()

# callboard_program(NAME SOURCES ... DEPS ... [DAEMON]): a binary of apps/.
# DAEMON: it runs for long, with the allocator of apps/allocator.cc; sanitizers bring their own.
function(callboard_program name)
  cmake_parse_arguments(ARG "DAEMON" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  if(ARG_DAEMON AND NOT CALLBOARD_SANITIZER)
    target_sources(${name} PRIVATE allocator.cc)
    target_link_libraries(${name} PRIVATE ${CALLBOARD_JEMALLOC})
  endif()
  set_target_properties(${name} PROPERTIES CALLBOARD_LAYER apps
                        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} callboard_flags callboard_ubsan_reduced)
  _callboard_precompile(${name})
endfunction()

# All tests that need no real program: what the sanitizer presets build and run.
add_custom_target(callboard_fast_tests)

# callboard_test(NAME SOURCES ... DEPS ... [LABEL fast|slow] [TIMEOUT seconds] [ARGS ...])
function(callboard_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPS;ARGS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL fast)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES CALLBOARD_LAYER tests
                        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest GTest::gmock callboard_flags
                                        callboard_ubsan_reduced)
  # A test's own code needs no optimiser, which is a third of the time it takes to compile; what it
  # tests is compiled as ever.
  target_compile_options(${name} PRIVATE -O0)
  _callboard_precompile(${name})
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp ignore_noninstrumented_modules=1;UBSAN_OPTIONS=print_stacktrace=1")
  if(ARG_LABEL STREQUAL "fast")
    add_dependencies(callboard_fast_tests ${name})
  endif()
endfunction()
