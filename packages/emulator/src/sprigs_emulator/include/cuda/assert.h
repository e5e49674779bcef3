// Kernels have these functions without the host's header, which would declare them a second time.
#pragma once
