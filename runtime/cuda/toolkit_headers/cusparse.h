#pragma once
// See cublas_v2.h.

typedef struct cusparseContext* cusparseHandle_t;
enum cusparseStatus_t : int;
