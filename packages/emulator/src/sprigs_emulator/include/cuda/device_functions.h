// What CUDA keeps here is in front of every emulated kernel already.
#pragma once
