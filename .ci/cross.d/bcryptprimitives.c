/* The one function of bcryptprimitives.dll that Rust's std calls, for Wine 8, which has no such library. */
#include <windows.h>

/* advapi32's RtlGenRandom, by the name it is exported under. */
BOOLEAN NTAPI SystemFunction036(void *buffer, ULONG length);

__declspec(dllexport) BOOL WINAPI ProcessPrng(BYTE *buffer, SIZE_T length)
{
    return SystemFunction036(buffer, (ULONG)length);
}
