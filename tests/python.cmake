# WEFT_PYTHON: a Python with pytest, which runs tests/*/test_*.py; by default Debian's, then that of the PATH.
set(WEFT_PYTHON "" CACHE FILEPATH "A Python with pytest, for the tests")
set(candidates ${WEFT_PYTHON})
if(NOT WEFT_PYTHON)
  set(candidates /usr/bin/python3 python3)
endif()
foreach(candidate ${candidates})
  execute_process(COMMAND ${candidate} -c "import sys, pytest; print(sys.executable)" RESULT_VARIABLE status
                  OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(status EQUAL 0)
    set(WEFT_PYTHON ${found} CACHE FILEPATH "A Python with pytest, for the tests" FORCE)
    return()
  endif()
endforeach()
message(FATAL_ERROR "WEFT_TESTS = ON needs Python with pytest, and these have none: ${candidates}. Fix: install python3-pytest "
                    "(sh configs/packages.sh tests), set -DWEFT_PYTHON=FILE to a Python with pytest, or set "
                    "-DWEFT_TESTS=OFF.")
