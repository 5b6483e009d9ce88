#pragma once
// The cuBLAS handles and codes that LibTorch's headers mention. Our code does not use them.

typedef struct cublasContext* cublasHandle_t;
enum cublasStatus_t : int;
