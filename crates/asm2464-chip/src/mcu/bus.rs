//! The memories that the CPU core accesses: registers, XDATA as the machine around it maps it, and code.

use i8051::{CpuContext, MemoryMapper};

use super::code_space::CodeSpace;
use super::sfr::Sfrs;

/// The CPU core's memories.
pub struct Bus<X> {
    /// Special function registers.
    pub sfrs: Sfrs,
    /// XDATA.
    pub xdata: X,
    /// Code.
    pub code: CodeSpace,
}

impl<X: MemoryMapper> CpuContext for Bus<X> {
    type Ports = Sfrs;
    type Xdata = X;
    type Code = CodeSpace;

    #[inline(always)]
    fn ports(&self) -> &Sfrs {
        &self.sfrs
    }

    #[inline(always)]
    fn xdata(&self) -> &X {
        &self.xdata
    }

    #[inline(always)]
    fn code(&self) -> &CodeSpace {
        &self.code
    }

    #[inline(always)]
    fn ports_mut(&mut self) -> &mut Sfrs {
        &mut self.sfrs
    }

    #[inline(always)]
    fn xdata_mut(&mut self) -> &mut X {
        &mut self.xdata
    }

    #[inline(always)]
    fn code_mut(&mut self) -> &mut CodeSpace {
        &mut self.code
    }
}
