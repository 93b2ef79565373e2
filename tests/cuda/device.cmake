# Runs the tests of the CPU device on the emulated CUDA device: the same programs, with the device selected by the
# environment. Included by tests/CMakeLists.txt.
set(on_emulator "WEFT_PLUGIN_PATH=${CMAKE_BINARY_DIR}/tests/cuda:${CMAKE_BINARY_DIR}/plugins;WEFT_BUILD=${CMAKE_BINARY_DIR}"
    "WEFT_SOURCE=${CMAKE_SOURCE_DIR};OMP_WAIT_POLICY=passive;CK_TIMEOUT_MULTIPLIER=${slower};${sanitizers}"
    "WEFT_TEST_DEVICE=cuda;WEFT_TEST_KEYS=share=yes workspace=1Mi cache=${CMAKE_BINARY_DIR}/tests/cuda/compiled;WEFT_EMULATOR_TRUNCATE=1")
foreach(name adapters attention elementwise head kernels packed products rows states)
  add_test(NAME cuda.device_${name} COMMAND test_device_${name})
  set_tests_properties(cuda.device_${name} PROPERTIES TIMEOUT ${patience} ENVIRONMENT "${on_emulator}")
  add_dependencies(test_device_${name} weft-device-cuda-emulator)
endforeach()

# Tests with attention, with cuDNN's forward.
string(REPLACE "share=yes" "share=yes attention=cudnn" by_cudnn "${on_emulator}")
add_test(NAME cuda.device_attention_cudnn COMMAND test_device_attention)
set_tests_properties(cuda.device_attention_cudnn PROPERTIES TIMEOUT ${patience} ENVIRONMENT "${by_cudnn}")
target_link_libraries(test_cuda_cudnn PRIVATE weft-cuda-emulator)
add_dependencies(test_cuda_cudnn weft-device-cuda-emulator)
set_tests_properties(cuda.cudnn PROPERTIES ENVIRONMENT "${on_emulator}")

# The kernels of attention for any GPU, where the emulated one has its own.
string(REPLACE "share=yes" "share=yes attention=split" by_split "${on_emulator}")
add_test(NAME cuda.device_attention_split COMMAND test_device_attention)
set_tests_properties(cuda.device_attention_split PROPERTIES TIMEOUT ${patience} ENVIRONMENT "${by_split}")

# Tests of the CUDA device itself.
target_link_libraries(test_cuda_device PRIVATE weft-cuda-emulator)
add_dependencies(test_cuda_device weft-device-cuda-emulator)
set_tests_properties(cuda.device PROPERTIES ENVIRONMENT "${on_emulator}")
target_link_libraries(test_cuda_waiting PRIVATE weft-cuda-emulator)
add_dependencies(test_cuda_waiting weft-device-cuda-emulator)
set_tests_properties(cuda.waiting PROPERTIES ENVIRONMENT "${on_emulator}")

# Bytes moved by kernels.
if(TARGET weft-device-cuda-counted)
  target_link_libraries(test_cuda_bytes PRIVATE weft-cuda-emulator)
  add_dependencies(test_cuda_bytes weft-device-cuda-counted)
  string(REPLACE "WEFT_PLUGIN_PATH=${CMAKE_BINARY_DIR}/tests/cuda:" "WEFT_PLUGIN_PATH=${CMAKE_BINARY_DIR}/tests/cuda/counted:"
         on_counted "${on_emulator}")
  set_tests_properties(cuda.bytes PROPERTIES ENVIRONMENT "${on_counted}")
  list(APPEND full_only cuda.bytes) # quick: cuda.device_*, for the results of the same kernels
endif()

# Complete models.
add_test(NAME cuda.golden COMMAND test_train_golden)
set_tests_properties(cuda.golden PROPERTIES TIMEOUT ${patience} ENVIRONMENT "${on_emulator}")
add_dependencies(test_train_golden weft-device-cuda-emulator)
add_test(NAME cuda.adapters COMMAND test_adapter_against_peft)
set_tests_properties(cuda.adapters PROPERTIES TIMEOUT ${patience} ENVIRONMENT "${on_emulator}")
add_dependencies(test_adapter_against_peft weft-device-cuda-emulator)
# Quick: cuda.cudnn; cuda.device_adapters and adapter.against_peft.
list(APPEND full_only cuda.device_attention_cudnn cuda.adapters)
