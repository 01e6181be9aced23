// Nothing: CMake wants a source of the library that has the precompiled headers
// of the tests (CMakeLists.txt).
