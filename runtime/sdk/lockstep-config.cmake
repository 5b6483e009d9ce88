# find_package(lockstep): the target lockstep::sdk, with LibTorch. LOCKSTEP_TORCH is the folder of LibTorch, or of the
# Python package torch, with include/ and lib/; without it the one of `python3 -c "import torch"`.
if(NOT LOCKSTEP_TORCH)
  execute_process(
    COMMAND python3 -c "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('torch').origin))"
    OUTPUT_VARIABLE LOCKSTEP_TORCH OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT EXISTS ${LOCKSTEP_TORCH}/include/torch/csrc/api/include/torch/version.h)
  message(FATAL_ERROR "lockstep: no LibTorch; set LOCKSTEP_TORCH to its folder, which has include/torch and lib")
endif()
if(NOT TARGET lockstep::sdk)
  add_library(lockstep::sdk INTERFACE IMPORTED)
  target_compile_features(lockstep::sdk INTERFACE cxx_std_20)
  target_include_directories(lockstep::sdk INTERFACE ${CMAKE_CURRENT_LIST_DIR}/../../../include)
  target_include_directories(lockstep::sdk SYSTEM INTERFACE
    ${LOCKSTEP_TORCH}/include ${LOCKSTEP_TORCH}/include/torch/csrc/api/include)
  target_link_libraries(lockstep::sdk INTERFACE ${LOCKSTEP_TORCH}/lib/libtorch_cpu.so ${LOCKSTEP_TORCH}/lib/libc10.so)
  # What LibTorch itself needs is found by the worker that loads the library.
  target_link_options(lockstep::sdk INTERFACE LINKER:--allow-shlib-undefined)
endif()
